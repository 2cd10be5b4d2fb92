"""Rows: what becomes an item, and which fault is named."""

from __future__ import annotations

import pytest

from batches.actions.registry import get_action
from batches.domain.columns import ACCOUNT
from batches.intake.checking import BadRow, GoodRow, RowChecker
from batches.intake.directory import AccountDirectory, KnownAccount
from batches.intake.header import Header

ACCOUNTS = [
    KnownAccount(1, "guid-1", "客服一号", True, "wecomapi"),
    KnownAccount(2, "guid-2", "客服二号", False, "wecomapi"),
    KnownAccount(3, "guid-3", "客服", True, "wecomapi"),
    KnownAccount(4, "guid-4", "客服", True, "wecomapi"),
    KnownAccount(5, "twice", "", True, "wecomapi"),
    KnownAccount(6, "twice", "", True, "wecomapi"),
    KnownAccount(7, "moved", "", False, "wecomapi"),
    KnownAccount(8, "moved", "", True, "wecomapi"),
]
HEADER = Header(1, ("账号", "客户ID", "姓名"), {"account": 0, "target": 1, "name": 2})


def checker(content: str = "您好 {姓名}", action: str = "send_text") -> RowChecker:
    found = get_action(action)
    spec = next(spec for spec in found.columns if spec.key == ACCOUNT)
    return RowChecker(
        action=found,
        compiled=found.compile({"content": content}, HEADER.columns, HEADER.mapping),
        header=HEADER,
        directory=AccountDirectory(ACCOUNTS, spec),
    )


def good(*cells: str) -> GoodRow:
    row = checker().check(list(cells))
    assert isinstance(row, GoodRow), row
    return row


def bad(*cells: str) -> BadRow:
    row = checker().check(list(cells))
    assert isinstance(row, BadRow), row
    assert str(row.problem)
    assert row.cells == list(cells)
    return row


def test_good_row_is_cleaned() -> None:
    row = good("guid-1\t", "'7881300000000001", "\u3000张三 ")
    assert (row.account.id, row.target) == (1, "7881300000000001")
    assert row.cells == ["guid-1", "7881300000000001", "张三"]


@pytest.mark.parametrize("cells", [[], ["", "", ""], [" ", "\u3000", "\u200b", "\t"]])
def test_row_with_nothing_in_it_is_no_row(cells: list[str]) -> None:
    assert checker().check(cells) is None


@pytest.mark.parametrize(
    ("cell", "account"), [("guid-1", 1), ("ｇｕｉｄ-1", 1), ("客服一号", 1), ("moved", 8)]
)
def test_account_is_found_by_guid_or_by_its_only_name(cell: str, account: int) -> None:
    assert good(cell, "1", "张三").account.id == account


@pytest.mark.parametrize(
    ("cell", "code"),
    [
        ("", "id_empty"),
        ("guid-9", "account_unknown"),
        ("客服九号", "account_unknown"),
        ("guid-2", "account_inactive"),
        ("客服二号", "account_inactive"),
        ("twice", "account_ambiguous"),
        ("客服", "account_name_ambiguous"),
        ("1.68885E+15", "value_scientific"),
        ("#N/A", "value_spreadsheet_error"),
    ],
)
def test_account_that_cannot_be_used_is_named(cell: str, code: str) -> None:
    row = bad(cell, "1", "张三")
    assert (row.problem.code, row.column, row.value) == (code, "账号", cell)


@pytest.mark.parametrize(
    ("cell", "code"),
    [
        ("", "id_empty"),
        ("7.88130E+15", "value_scientific"),
        ("#REF!", "value_spreadsheet_error"),
        ("7881300000000000.0", "id_decimal"),
        ("7881 3000", "id_blank_inside"),
        ("张三", "id_characters"),
        ("9" * 65, "id_too_long"),
        ("wmAbCdEfGhIjKl", "id_foreign"),
    ],
)
def test_target_that_is_no_id_is_named(cell: str, code: str) -> None:
    row = bad("guid-1", cell, "张三")
    assert (row.problem.code, row.column) == (code, "客户ID")


def test_empty_value_of_a_placeholder_names_its_column() -> None:
    row = bad("guid-1", "1", " ")
    assert (row.problem.code, row.column) == ("placeholder_empty", "姓名")
    assert isinstance(checker("您好").check(["guid-1", "1", ""]), GoodRow)


def test_empty_value_of_a_placeholder_by_another_name_names_its_column() -> None:
    row = checker("您好 {name}").check(["guid-1", "1", " "])
    assert isinstance(row, BadRow)
    assert (row.problem.code, row.column) == ("placeholder_empty", "姓名")


def test_shifted_cells_are_named_before_anything_else() -> None:
    row = bad("guid-9", "", "张三", "", "多余")
    assert (row.problem.code, row.value) == ("row_too_many_cells", "多余")
    assert good("guid-1", "1", "张三", "", " ").cells == ["guid-1", "1", "张三"]


def test_short_row_is_filled_up() -> None:
    row = checker("您好").check(["guid-1", "1"])
    assert isinstance(row, GoodRow)
    assert row.cells == ["guid-1", "1", ""]


def test_of_several_faults_the_account_comes_first_then_the_target() -> None:
    assert bad("guid-9", "", "").problem.code == "account_unknown"
    assert bad("guid-1", "", "").column == "客户ID"


def test_customer_id_in_a_job_about_groups_is_refused() -> None:
    row = checker(action="set_group_welcome").check(["guid-1", "7881300000000001", "张三"])
    assert isinstance(row, BadRow)
    assert row.problem.code == "id_of_customer"
