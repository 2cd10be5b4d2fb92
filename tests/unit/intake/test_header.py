"""Finding the header and what its columns mean."""

from __future__ import annotations

from typing import Any

import pytest

from batches.actions.registry import get_action
from batches.domain.problems import Problem
from batches.intake.header import Header, find_header, sniff_delimiter
from batches.intake.source import FileRefusedError, source_of
from batches.intake.table import open_table

SPECS = get_action("send_text").columns


def header(*rows: list[str], choice: Any = None) -> Header:
    return find_header(enumerate(rows, 1), SPECS, choice)


def refusals(*rows: list[str], choice: Any = None) -> list[Problem]:
    with pytest.raises(FileRefusedError) as caught:
        header(*rows, choice=choice)
    problems = [p for p in caught.value.problems if isinstance(p, Problem)]
    assert all(str(problem) for problem in problems)
    return problems


@pytest.mark.parametrize(
    "names",
    [
        ["账号", "客户ID", "姓名"],
        ["guid", "external_userid", "name"],
        ["\ufeffＡＣＣＯＵＮＴ", " toId ", "备注名"],
        ["sender", "Customer ID", "remark_name"],
    ],
)
def test_header_in_either_language_is_understood(names: list[str]) -> None:
    assert header(names).mapping == {"account": 0, "target": 1, "name": 2}


def test_header_after_title_rows_is_found() -> None:
    found = header(["五月客户名单", "", ""], ["制表：运营部"], ["客户ID", "账号", ""], ["1", "2"])
    assert found == Header(3, ("客户ID", "账号"), {"account": 1, "target": 0})


def test_header_beyond_the_tenth_row_is_not_looked_for() -> None:
    assert refusals(*[["说明"]] * 10, ["账号", "客户ID"])[0].code == "column_missing"


def test_missing_columns_are_named_with_those_found_and_expected() -> None:
    account, target = refusals(["手机", "姓名"], ["138", "张三"])
    assert account.code == target.code == "column_missing"
    assert "“账号”" in str(account)
    assert "手机、姓名" in str(account)
    assert "guid" in str(account)
    assert "external_userid" in str(target)


def test_only_the_target_missing_names_only_the_target() -> None:
    (problem,) = refusals(["账号", "姓名"])
    assert problem.params["label"] == "客户 ID"


def test_columns_named_are_those_of_the_likeliest_header() -> None:
    (problem,) = refusals(["五月", "客户", "名单", "共三行"], ["客户ID", "姓名"], ["1", "张三"])
    assert problem.params["columns"] == "客户ID、姓名"
    (problem,) = refusals(["甲", "乙", "丙"], ["名单", "编号"], choice={"account": "编号"})
    assert problem.params["columns"] == "名单、编号"


def test_same_header_twice_for_a_needed_column_is_refused_unless_chosen() -> None:
    names = ["账号", "客户ID", "客户ID"]
    (problem,) = refusals(names)
    assert problem.code == "column_ambiguous"
    assert header(names, choice={"target": 2}).mapping["target"] == 2


def test_same_header_twice_elsewhere_is_harmless() -> None:
    assert header(["账号", "客户ID", "备注", "备注"]).columns[2:] == ("备注", "备注")


def test_two_headers_for_one_column_take_the_more_telling() -> None:
    assert header(["目标", "账号", "客户ID"]).mapping["target"] == 2


def test_choice_by_header_or_index_replaces_what_the_headers_say() -> None:
    names = ["A列", "B列", "客户ID"]
    found = header(names, choice={"account": "B列", "target": 0})
    assert found.mapping == {"account": 1, "target": 0}


def test_choice_of_a_column_that_is_not_there_is_refused() -> None:
    (problem,) = refusals(["账号", "客户ID"], choice={"target": "客户号"})
    assert problem.code == "column_choice_unknown"
    assert "客户号" in str(problem)


def test_header_with_wide_commas_is_told_so() -> None:
    (problem,) = refusals(["账号，客户ID，姓名"])
    assert problem.code == "header_wide_comma"


def test_nothing_but_blank_rows_is_refused() -> None:
    assert refusals(["", " "], ["\u3000"])[0].code == "file_blank"


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_separator_is_the_one_that_explains_the_header(delimiter: str) -> None:
    names = ["账号", "客户ID", "备注"]
    rows = [["名单,含逗号;和分号"], names, ["g", "1", "x"]]
    data = "\r\n".join(delimiter.join(row) for row in rows).encode()
    table = open_table(source_of("a.csv", data), SPECS)
    assert table.delimiter == delimiter
    assert table.header.columns == tuple(names)


def test_separator_line_of_excel_is_passed_over() -> None:
    table = open_table(source_of("a.csv", "sep=;\n账号;客户ID\ng;1\n".encode()), SPECS)
    assert (table.header.row, list(table.rows())) == (2, [(3, ["g", "1"])])


def test_separator_of_one_column_is_a_comma() -> None:
    kind = open_table(source_of("a.csv", "账号,客户ID\n".encode()), SPECS).kind
    assert sniff_delimiter(source_of("b.csv", "名单\n张三\n".encode()), kind, SPECS) == ","  # type: ignore[arg-type]


def test_file_with_more_columns_than_any_list_has_is_refused() -> None:
    """Of whatever size: its rows are looked at once, and no page shows thousands of columns."""
    wide = ",".join(["abc"] * 50_000).encode()
    with pytest.raises(FileRefusedError) as caught:
        open_table(source_of("a.csv", b"\n".join([wide] * 10)), SPECS)
    assert "文件有 50000 列，最多 1000 列" in str(caught.value.problems[0])
    names = ["账号", "客户ID", "姓名", *(f"列{n}" for n in range(997))]
    assert header(names).mapping == {"account": 0, "target": 1, "name": 2}
