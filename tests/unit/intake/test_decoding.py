"""What a file is, and in which encoding."""

from __future__ import annotations

import codecs
import io
import zipfile

import pytest

from batches.domain.problems import Problem
from batches.intake.decoding import TextKind, WorkbookKind, examine
from batches.intake.source import FileRefusedError, source_of

TEXT = "账号,客户ID,姓名\r\nguid-1,7881,张三\r\n"


def refusal(data: bytes, override: str | None = None, chunk: int = 1 << 20) -> Problem:
    with pytest.raises(FileRefusedError) as caught:
        examine(source_of("名单.csv", data, chunk), override)
    (problem,) = caught.value.problems
    assert isinstance(problem, Problem)
    assert str(problem)  # every placeholder has its value
    return problem


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1 << 20])
@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (TEXT.encode(), TextKind("utf-8")),
        (codecs.BOM_UTF8 + TEXT.encode(), TextKind("utf-8", 3)),
        (codecs.BOM_UTF16_LE + TEXT.encode("utf-16-le"), TextKind("utf-16-le", 2)),
        (codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"), TextKind("utf-16-be", 2)),
        (TEXT.encode("gb18030"), TextKind("gb18030")),
        ("账号,姓名\n1,𠮷野\n".encode("gb18030"), TextKind("gb18030")),
        (b"guid,toId\n1,2\n", TextKind("utf-8")),
    ],
)
def test_examine_whatever_the_chunks_finds_the_encoding(
    data: bytes, kind: TextKind, chunk: int
) -> None:
    assert examine(source_of("a.csv", data, chunk)) == kind


def test_examine_utf8_that_breaks_after_a_megabyte_names_byte_and_line() -> None:
    line = "guid-1,7881,张三丰\n"
    good = (line * 60_000).encode()
    assert len(good) > 1024 * 1024
    problem = refusal(good + b"guid-1,\xff,x\n" + line.encode())
    assert problem.code == "encoding_damaged"
    assert problem.params == {"encoding": "utf-8", "line": 60_001, "byte": len(good) + 8}


def test_examine_utf8_cut_in_its_last_character_is_refused() -> None:
    data = (TEXT * 20).encode() + "李".encode()[:2]
    problem = refusal(data, chunk=5)
    assert problem.code == "encoding_damaged"
    assert problem.params["byte"] == len(data) - 1
    assert problem.params["line"] == 41


def test_examine_text_of_no_known_encoding_names_both_places() -> None:
    data = b"guid,name\n1,ok\n2,\xb0\xa1\n3,\xff\xff\n"
    problem = refusal(data)
    assert problem.code == "encoding_neither"
    assert problem.params == {"utf8_line": 3, "utf8_byte": 18, "gb_line": 4, "gb_byte": 23}
    assert "UTF-8" in str(problem)
    assert "另存为" in str(problem)


def test_examine_damaged_utf16_is_refused() -> None:
    problem = refusal(codecs.BOM_UTF16_LE + TEXT.encode("utf-16-le") + b"\x00")
    assert problem.code == "encoding_damaged"


def test_examine_two_byte_characters_only_is_doubtful() -> None:
    kind = examine(source_of("a.csv", "guid,name\n1,毛莫梅\n".encode("gb18030")))
    assert isinstance(kind, TextKind)
    assert kind.doubtful
    told = examine(source_of("a.csv", "guid,name\n1,毛莫梅\n".encode("gb18030")), "gbk")
    assert told == TextKind("gb18030")


def test_examine_with_an_override_that_cannot_be_is_refused() -> None:
    problem = refusal(TEXT.encode("gb18030"), "utf-8")
    assert problem.code == "encoding_override_wrong"
    assert problem.params["line"] == 1
    assert refusal(TEXT.encode(), "latin-9").code == "encoding_unknown"


def test_examine_with_an_override_reads_utf16_without_a_mark() -> None:
    data = TEXT.encode("utf-16-le")
    problem = refusal(data)
    assert problem.code == "file_binary"
    assert "指定编码" in str(problem)
    assert examine(source_of("a.csv", data), "UTF-16LE") == TextKind("utf-16-le")


@pytest.mark.parametrize(
    ("data", "code", "word"),
    [
        (b"", "file_empty", "空"),
        (b"%PDF-1.7\n...", "file_not_csv", "PDF"),
        (b"\x89PNG\r\n\x1a\n\0\0", "file_not_csv", "PNG"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0", "file_old_excel", ".xls"),
        (b"<html><table><tr><td>1</td></tr></table>", "file_not_csv", "HTML"),
        (b"guid,toId\n1,2\n\0\0\0", "file_binary", "二进制"),
        (b"a" * (1024 * 1024 + 10), "file_line_too_long", "1 MB"),
    ],
)
def test_examine_what_is_no_csv_says_what_it_is(data: bytes, code: str, word: str) -> None:
    problem = refusal(data)
    assert problem.code == code
    assert word in str(problem)


def test_examine_a_zip_is_left_to_the_workbook_reader() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x.txt", "x")
    assert examine(source_of("a.xlsx", buffer.getvalue())) == WorkbookKind()
