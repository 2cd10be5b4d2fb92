"""Reading .xlsx."""

from __future__ import annotations

import datetime as dt
import io
import zipfile
from collections.abc import Sequence
from typing import Any

import pytest
from openpyxl import Workbook

from batches.domain.problems import Problem
from batches.intake import workbook
from batches.intake.source import FileRefusedError, Source, source_of
from batches.intake.textrows import Row


def book(*sheets: Sequence[Sequence[Any]], hidden: int = 0, at: tuple[int, int] = (1, 1)) -> Source:
    """A workbook; the first `hidden` sheets are hidden, cells start at `at` (row, column)."""
    made = Workbook()
    made.remove(made.active)  # type: ignore[arg-type]
    for number, rows in enumerate(sheets):
        sheet = made.create_sheet(f"表{number}")
        sheet.sheet_state = "hidden" if number < hidden else "visible"
        for row, values in enumerate(rows, at[0]):
            for column, value in enumerate(values, at[1]):
                sheet.cell(row, column, value)
    buffer = io.BytesIO()
    made.save(buffer)
    return source_of("名单.xlsx", buffer.getvalue())


def rows_of(source: Source) -> list[Row]:
    return list(workbook.workbook_rows(source))


def refusal(source: Source) -> Problem:
    with pytest.raises(FileRefusedError) as caught:
        rows_of(source)
    (problem,) = caught.value.problems
    assert isinstance(problem, Problem)
    assert str(problem)
    return problem


def test_cells_come_as_a_person_sees_them() -> None:
    moment = dt.datetime.fromisoformat("2026-03-01 08:05")
    values = ["文本", 24203, 2.5, True, dt.date(2026, 3, 1), moment]
    texts = ["文本", "24203", "2.5", "TRUE", "2026-03-01", "2026-03-01 08:05:00"]
    assert rows_of(book([values, [None, "x"]])) == [(1, texts), (2, ["", "x", "", "", "", ""])]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("7881300000000977", "7881300000000977"),
        (788130000000977, "788130000000977"),
        (999999999999999, "999999999999999"),
        (7881300000000977, "7.88130E+15"),
        (10**16, "1.00000E+16"),
    ],
)
def test_number_longer_than_a_spreadsheet_keeps_is_shown_as_destroyed(
    value: Any, text: str
) -> None:
    assert rows_of(book([[value]])) == [(1, [text])]


def test_cell_with_an_escaped_nul_comes_without_it() -> None:
    """PostgreSQL's text has no NUL; a workbook can."""
    assert rows_of(book([["客户_x0000_ID"], ["788_x0000_1"]])) == [(1, ["客户ID"]), (2, ["7881"])]


def test_rows_keep_the_numbers_of_the_spreadsheet() -> None:
    rows = [["标题"], [None], ["账号", "客户ID"], [None, None], ["g", "1"]]
    assert [number for number, _ in rows_of(book(rows))] == [1, 3, 5]
    assert rows_of(book([["a"]], at=(3, 2))) == [(3, ["", "a"])]


def test_first_visible_sheet_with_content_is_read() -> None:
    assert rows_of(book([["隐藏"]], [], [["名单"]], hidden=1)) == [(1, ["名单"])]
    assert refusal(book([])).code == "workbook_empty"


def test_zip_of_something_else_is_no_workbook() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("word/document.xml", "x")
    assert refusal(source_of("a.docx", buffer.getvalue())).code == "file_not_csv"


def test_damaged_workbook_is_refused() -> None:
    assert refusal(source_of("a.xlsx", b"PK\x03\x04" + b"x" * 100)).code == "workbook_unreadable"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("xl/workbook.xml", "<broken")
    assert refusal(source_of("a.xlsx", buffer.getvalue())).code == "workbook_unreadable"


def test_workbook_too_large_for_memory_is_refused_with_the_cure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = book([["名单"]])
    monkeypatch.setattr(workbook, "UNPACKED_MAX_BYTES", 1000)
    problem = refusal(source)
    assert problem.code == "workbook_too_large"
    assert "CSV" in str(problem)
    monkeypatch.setattr(workbook, "WORKBOOK_MAX_BYTES", 1000)
    assert refusal(source).code == "workbook_too_large"


@pytest.mark.parametrize("far", [(1_048_576, 16_384), (1_048_576, 30)])
def test_stray_cell_far_away_is_refused_before_room_is_made_for_it(far: tuple[int, int]) -> None:
    """The reader would hold every cell between: gigabytes for a file of a few kilobytes."""
    made = Workbook()
    sheet = made.active
    sheet.append(["账号", "客户ID"])
    sheet.cell(*far, "z")
    buffer = io.BytesIO()
    made.save(buffer)
    problem = refusal(source_of("名单.xlsx", buffer.getvalue()))
    assert problem.code == "workbook_too_sparse"
    assert f"第 {far[0]} 行第 {far[1]} 列" in str(problem)


def _archive(name: str = "xl/worksheets/sheet1.xml") -> tuple[bytearray, int, int]:
    """A workbook's bytes, and where a part's local and central records begin."""
    made = Workbook()
    for number in range(300):
        made.active.append([f"g{number}", number * 7919, "名"])
    buffer = io.BytesIO()
    made.save(buffer)
    data = bytearray(buffer.getvalue())
    with zipfile.ZipFile(buffer) as archive:
        local = archive.getinfo(name).header_offset
    return data, local, bytes(data).rindex(b"PK\x01\x02", 0, bytes(data).rindex(name.encode()))


def test_workbook_whose_sheet_is_encrypted_or_packed_oddly_is_refused() -> None:
    for at_local, at_central, value in ((6, 8, 1), (8, 10, 97)):
        data, local, central = _archive()
        data[local + at_local] = data[central + at_central] = value
        assert refusal(source_of("a.xlsx", bytes(data))).code == "workbook_unreadable"


@pytest.mark.parametrize("at", range(40, 400, 40))
def test_workbook_whose_sheet_is_damaged_is_refused(at: int) -> None:
    data, local, _ = _archive()
    data[local + 54 + at : local + 54 + at + 30] = b"\xff" * 30
    assert refusal(source_of("a.xlsx", bytes(data))).code == "workbook_unreadable"
