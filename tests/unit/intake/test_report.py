"""The report's problems survive JSON."""

from __future__ import annotations

import json

from batches.actions.registry import get_action
from batches.domain.problems import Problem, Term
from batches.intake.checking import BadRow, GoodRow
from batches.intake.directory import KnownAccount
from batches.intake.report import (
    Findings,
    example_of,
    problem_from_json,
    problem_to_json,
    reason_from_json,
)

NESTED = Problem(
    "outer",
    "%(label)s 第 %(row)s 行：%(why)s",
    {"label": Term("账号"), "row": 3, "why": Problem("inner", "坏 %(value)s", {"value": "x"})},
)


def test_problem_through_json_says_the_same_and_still_translates() -> None:
    again = problem_from_json(json.loads(json.dumps(problem_to_json(NESTED))))
    assert str(again) == str(NESTED) == "账号 第 3 行：坏 x"
    english = {"账号": "Account", "坏 %(value)s": "bad %(value)s"}
    assert again.translated(lambda text: english.get(text, text)) == "Account 第 3 行：bad x"


def test_reasons_are_counted_most_frequent_first() -> None:
    findings = Findings()
    for row, code in enumerate(["a", "b", "b"], 2):
        findings.add_bad(row, BadRow(Problem(code, "text"), "", "", []))
    told = [(r["code"], r["count"], r["example_row"]) for r in findings.by_reason()]
    assert told == [("b", 2, 3), ("a", 1, 2)]
    assert (findings.rows, findings.bad) == (3, 3)


def _told(*values: str, times: int = 1) -> tuple[str, str]:
    findings = Findings()
    for row, value in enumerate(values, 2):
        findings.count(Problem("unknown", "账号“%(value)s”不存在", {"value": value}), row, times)
    [reason] = json.loads(json.dumps(findings.by_reason()))
    return str(reason_from_json(reason)), example_of(reason)


def test_reason_of_rows_that_differ_blames_none_of_their_values() -> None:
    assert _told("甲", "乙", "甲") == ("账号“…”不存在", "甲")
    assert _told("甲", times=20) == ("账号“…”不存在", "甲")


def test_reason_of_rows_alike_names_their_value() -> None:
    assert _told("甲", "甲") == ("账号“甲”不存在", "")


def test_samples_are_the_first_five_different_rows_as_they_will_be_sent() -> None:
    columns, mapping = ("账号", "客户ID", "姓名"), {"account": 0, "target": 1}
    compiled = get_action("send_text").compile({"content": "嗨 {姓名}"}, columns, mapping)
    account = KnownAccount(1, "guid-1", "一号", True, "wecomapi")
    findings = Findings()
    for number, target in enumerate("1123456", 2):
        findings.add_good(
            number, GoodRow(account, target, ["guid-1", target, f"客户{number}"], ""), compiled
        )
    assert [sample["row_no"] for sample in findings.samples] == [2, 4, 5, 6, 7]
    assert findings.samples[0] == {
        "row_no": 2,
        "account": "guid-1",
        "account_name": "一号",
        "target": "1",
        "content": "嗨 客户2",
        "tags": [],
    }
