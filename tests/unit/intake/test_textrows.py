"""Rows of delimited text."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batches.domain.problems import Problem
from batches.intake.decoding import TextKind, examine
from batches.intake.source import FileRefusedError, source_of
from batches.intake.textrows import CELL_MAX_CHARS, Row, text_rows


def rows_of(text: str, delimiter: str = ",", chunk: int = 1 << 20) -> list[Row]:
    return list(text_rows(source_of("a.csv", text.encode(), chunk), TextKind("utf-8"), delimiter))


def refusal(text: str) -> Problem:
    with pytest.raises(FileRefusedError) as caught:
        rows_of(text)
    (problem,) = caught.value.problems
    assert isinstance(problem, Problem)
    assert str(problem)
    return problem


@pytest.mark.parametrize("end", ["\r\n", "\n", "\r"])
@pytest.mark.parametrize("chunk", [1, 4, 1 << 20])
def test_rows_with_any_line_end_are_numbered_by_record(end: str, chunk: int) -> None:
    text = end.join(["h1,h2", f'a,"one{end}two"', "", "b,c", ""])
    assert rows_of(text, chunk=chunk) == [
        (1, ["h1", "h2"]),
        (2, ["a", f"one{end}two"]),
        (4, ["b", "c"]),
    ]


def test_rows_with_mixed_line_ends_are_told_apart() -> None:
    assert [cells for _, cells in rows_of("a\rb\nc\r\nd")] == [["a"], ["b"], ["c"], ["d"]]


def test_quotes_inside_plain_cells_stay() -> None:
    assert rows_of('a,5" 屏,="7881"\n') == [(1, ["a", '5" 屏', '="7881"'])]


def test_quote_that_never_ends_is_refused_with_its_row() -> None:
    problem = refusal('h1,h2\n"a\nb",c\nd,"e\nf,g\n')
    assert problem.code == "csv_quote_open"
    assert problem.params == {"row": 3, "line": 4}


def test_text_after_a_closing_quote_is_refused_with_its_row() -> None:
    problem = refusal('h1,h2\na,b\nc,"d"e\n')
    assert problem.code == "csv_quote_stray"
    assert problem.params["row"] == 3


def test_absurdly_long_cell_is_refused() -> None:
    problem = refusal('h1,h2\na,"' + "x\n" * (CELL_MAX_CHARS // 2 + 10) + '"\n')
    assert problem.code == "csv_cell_too_long"
    assert problem.params["row"] == 2


def test_long_message_is_no_problem() -> None:
    assert rows_of("a," + "长" * 100_000)[0][1][1] == "长" * 100_000


def test_zero_characters_of_utf16_are_left_out() -> None:
    source = source_of("a.csv", "a\0b,c\n".encode("utf-16-le"))
    assert list(text_rows(source, TextKind("utf-16-le"), ",")) == [(1, ["ab", "c"])]


CELL = st.text(
    st.characters(codec="gb18030", exclude_characters="\0", exclude_categories=("Cs",)),
    max_size=20,
)


@settings(max_examples=300, deadline=None)
@given(
    table=st.lists(st.lists(CELL, min_size=2, max_size=4), min_size=1, max_size=6),
    delimiter=st.sampled_from(",;\t"),
    end=st.sampled_from(["\r\n", "\n", "\r"]),
    all_quoted=st.booleans(),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "gb18030"]),
    chunk=st.integers(4, 50),
)
def test_what_csv_writes_in_any_dialect_is_read_back(
    table: list[list[str]], delimiter: str, end: str, all_quoted: bool, encoding: str, chunk: int
) -> None:
    text = io.StringIO()
    # left alone, the writer only quotes the line end that it writes itself
    quoting: Any = csv.QUOTE_ALL if all_quoted or end != "\r\n" else csv.QUOTE_MINIMAL
    csv.writer(text, delimiter=delimiter, lineterminator=end, quoting=quoting).writerows(table)
    # A header fixes the encoding, as real files do: see `doubtful` for those without one.
    data = ("账号列客户\n" + text.getvalue()).encode(encoding)
    source = source_of("a.csv", data, chunk)
    kind = examine(source)
    assert isinstance(kind, TextKind)
    assert [cells for _, cells in text_rows(source, kind, delimiter)][1:] == table
