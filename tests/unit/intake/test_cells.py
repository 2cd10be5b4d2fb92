"""Cleaning of cells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batches.intake.cells import SEPARATOR, clean_id, clean_row, clean_text, join_cells


@pytest.mark.parametrize(
    ("cell", "cleaned"),
    [
        ("7881300000000001\t", "7881300000000001"),
        ("'7881300000000001", "7881300000000001"),
        ("’7881", "’7881"),
        ("\ufeff7881\u200b", "7881"),
        ("78\u200b81", "7881"),
        ("\xa0\u30007881\u3000", "7881"),
        ("７８８１", "7881"),
        ('="7881300000000001"', "7881300000000001"),
        ("wmA-b_C", "wmA-b_C"),
        ("78 81", "78 81"),
        ("", ""),
    ],
)
def test_id_comes_out_of_what_surrounds_it(cell: str, cleaned: str) -> None:
    assert clean_id(cell) == cleaned


@pytest.mark.parametrize(
    ("cell", "cleaned"),
    [
        ("\u3000张 三\xa0", "张 三"),
        ("\u200b张三\ufeff\r\n", "张三"),
        ("ＡＢＣ", "ＡＢＣ"),
        ("'123", "123"),
        ("'引用'", "'引用'"),
        ("第一行\r\n第二行", "第一行\r\n第二行"),
        ("👨\u200d👩\u200d👧", "👨\u200d👩\u200d👧"),
    ],
)
def test_text_is_trimmed_and_otherwise_kept(cell: str, cleaned: str) -> None:
    assert clean_text(cell) == cleaned


@given(st.lists(st.text(st.sampled_from("ab1' \t\n\r\x1f\x1e\x00\u3000\xa0\u200b\ufeff\u2060张"))))
def test_row_at_once_is_cleaned_as_its_cells_are(row: list[str]) -> None:
    assert clean_row(row) == [clean_text(cell) for cell in row]


@given(st.lists(st.text(st.sampled_from("a\t\n\r\x1f\x1e\x00\x07\x7f张")), min_size=2))
def test_joined_cells_can_be_taken_apart_again(row: list[str]) -> None:
    cells, joined = join_cells(row)
    assert joined.split(SEPARATOR) == cells
    assert not set(joined) & set("\x00\x07\x1e\x7f")
    assert [cell.replace("\x1f", "") for cell in cells] == cells
