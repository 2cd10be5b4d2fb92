"""A file of accounts, row by row, with everything that is wrong in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import URLValidator

from batches.actions.base import ColumnSpec
from batches.actions.checks import any_value, id_problem
from batches.domain.addresses import normal_url
from batches.domain.problems import Names, Problem, Term
from batches.domain.text import N_
from batches.gateways.base import GatewayConfig
from batches.gateways.registry import gateway_kinds, get_gateway
from batches.intake.cells import clean_id, clean_text
from batches.intake.source import Source
from batches.intake.table import open_table
from batches.models import Gateway

RATE_MAX = 100_000
INFLIGHT_MAX = 50

_COLUMNS = (
    ColumnSpec("gateway_kind", N_("网关类型"), ("gateway_kind", "网关类型"), False, any_value),
    ColumnSpec(
        "gateway_url", N_("网关地址"), ("gateway_url", "网关地址", "base_url"), True, any_value
    ),
    ColumnSpec("guid", N_("账号标识"), ("guid", "账号标识", "账号ID", "账号"), True, id_problem),
    ColumnSpec("name", N_("名称"), ("name", "名称", "账号名称", "姓名"), False, any_value),
    ColumnSpec(
        "total_rate_per_min",
        N_("总速率（条/分）"),
        ("total_rate_per_min", "总速率", "总速率（条/分）"),
        False,
        any_value,
    ),
    ColumnSpec(
        "online_reserve_per_min",
        N_("在线保留（条/分）"),
        ("online_reserve_per_min", "在线保留", "在线保留（条/分）"),
        False,
        any_value,
    ),
    ColumnSpec("max_inflight", N_("同时请求数"), ("max_inflight", "同时请求数"), False, any_value),
)
_LABELS = {spec.key: Term(spec.label) for spec in _COLUMNS}
#: number columns → the smallest and the largest value
_NUMBERS = {
    "total_rate_per_min": (1, RATE_MAX),
    "online_reserve_per_min": (0, RATE_MAX),
    "max_inflight": (1, INFLIGHT_MAX),
}


@dataclass(slots=True)
class AccountRow:
    """One account as the file gives it; columns that are empty are not in `columns`."""

    number: int
    url: str
    guid: str
    kind: str = ""
    columns: dict[str, Any] = field(default_factory=dict)


def read_accounts(source: Source) -> tuple[list[AccountRow], list[Problem]]:
    """The rows of the file; they are of use only where there is no problem."""
    rows, problems = _read(source)
    return rows, problems or _contradictions(rows)


def _read(source: Source) -> tuple[list[AccountRow], list[Problem]]:
    table = open_table(source, _COLUMNS)
    rows: list[AccountRow] = []
    problems: list[Problem] = []
    for number, cells in table.rows():
        if not any(map(clean_text, cells)):
            continue
        values = {
            key: clean_text(cells[index]) if index < len(cells) else ""
            for key, index in table.header.mapping.items()
        }
        row, faults = _parse(number, values)
        rows.append(row)
        problems += (at_row(number, fault) for fault in faults)
    return rows, problems


def _parse(number: int, values: dict[str, str]) -> tuple[AccountRow, list[Problem]]:
    url = normal_url(clean_id(values["gateway_url"]))
    guid = clean_id(values["guid"])
    kind = clean_id(values.get("gateway_kind", ""))
    faults = _gateway_faults(url, kind)
    if fault := id_problem(guid):
        faults.append(fault)
    row = AccountRow(number, url, guid, kind)
    if name := values.get("name", ""):
        row.columns["name"] = name
        if len(name) > 100:
            faults.append(Problem("account_name_too_long", N_("名称最多 100 字。")))
    for key, (least, most) in _NUMBERS.items():
        text = clean_id(values.get(key, ""))
        if not text:
            continue
        digits = text.lstrip("0") or "0"
        whole = text.isascii() and text.isdigit() and len(digits) <= 12
        if not (whole and least <= int(digits) <= most):
            faults.append(
                Problem(
                    "number_range",
                    N_("“%(label)s”必须是 %(least)s 到 %(most)s 的整数，现在是“%(value)s”。"),
                    {"label": _LABELS[key], "least": least, "most": most, "value": text[:40]},
                )
            )
        else:
            row.columns[key] = int(digits)
    return row, faults


def _gateway_faults(url: str, kind: str) -> list[Problem]:
    """What is wrong with a gateway as the file names it."""
    faults: list[Problem] = []
    try:
        URLValidator(schemes=["http", "https"])(url)
    except ValidationError:
        faults.append(
            Problem(
                "gateway_url_invalid",
                N_("网关地址“%(value)s”不是 http:// 或 https:// 开头的地址。"),
                {"value": url[:100]},
            )
        )
    if kind and kind not in gateway_kinds():
        faults.append(
            Problem(
                "gateway_kind_unknown",
                N_("不认识的网关类型“%(value)s”。可用：%(known)s。"),
                {"value": kind[:40], "known": Names(gateway_kinds())},
            )
        )
    if faults:
        return faults
    kind = kind or gateway_kinds()[0]
    return get_gateway(kind).validate(GatewayConfig(kind, url, dialect=Gateway.Dialect.PATH))


def _contradictions(rows: list[AccountRow]) -> list[Problem]:
    """Rows that name the same account twice, or give one gateway two kinds."""
    problems: list[Problem] = []
    seen: dict[tuple[str, str], int] = {}
    kinds: dict[str, str] = {}
    for row in rows:
        first = seen.setdefault((row.url, row.guid), row.number)
        if first != row.number:
            problems.append(
                at_row(
                    row.number,
                    Problem(
                        "account_repeated",
                        N_("账号“%(value)s”重复：第 %(first)s 行已有。请只留一行。"),
                        {"value": row.guid, "first": first},
                    ),
                )
            )
        if row.kind and kinds.setdefault(row.url, row.kind) != row.kind:
            problems.append(
                at_row(
                    row.number,
                    Problem(
                        "gateway_kind_differs",
                        N_("网关 %(url)s 在文件中有两种类型。请改成同一种。"),
                        {"url": row.url},
                    ),
                )
            )
    return problems


def at_row(number: int, problem: Problem) -> Problem:
    """The problem with the row that has it."""
    return Problem(problem.code, N_("第 %(row)s 行：%(why)s"), {"row": number, "why": problem})
