"""Accounts from a file: gateways and accounts are created or changed, all or nothing."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import URLValidator
from django.db import transaction

from batches.actions.base import ColumnSpec
from batches.actions.checks import any_value, id_problem
from batches.domain.errors import InvalidInputError
from batches.domain.problems import Names, Problem, Term
from batches.domain.text import N_
from batches.domain.verbs import CHANGE_ACCOUNTS
from batches.gateways.base import GatewayConfig
from batches.gateways.registry import gateway_kinds, get_gateway
from batches.intake.cells import clean_id, clean_text
from batches.intake.source import FileRefusedError, Source
from batches.intake.table import open_table
from batches.models import Account, Gateway
from batches.store.events import Actor, Line, add_event, add_events, new_event

from .account_switch import Restored, restore_account, set_account_active
from .permissions import require
from .settings import account_facts, account_line, gateway_facts, gateway_line

__all__ = [
    "LoadedGateway",
    "Restored",
    "load_accounts",
    "restore_account",
    "set_account_active",
]
PROBLEMS_MAX = 50
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


@dataclass(frozen=True, slots=True)
class LoadedGateway:
    """A gateway of the file, the path that it must call back, and its accounts in the file."""

    gateway_url: str
    callback_path: str
    accounts: int


@dataclass(slots=True)
class _Row:
    """One account as the file gives it; columns that are empty are not in `columns`."""

    number: int
    url: str
    guid: str
    kind: str = ""
    columns: dict[str, Any] = field(default_factory=dict)


def load_accounts(*, actor: Actor, source: Source) -> list[LoadedGateway]:
    """Create or change the gateways and accounts of a CSV or .xlsx file.

    What a file leaves out stays as it is, or takes its default. Each account and gateway that is
    made or changed has its own line in the audit. Raises InvalidInputError with every faulty row,
    and changes nothing then; NotAllowedError.
    """
    require(actor=actor, permission=CHANGE_ACCOUNTS)
    rows, problems = _read(source)
    if not problems:
        problems = _contradictions(rows)
    if problems:
        raise InvalidInputError(*problems[:PROBLEMS_MAX])
    if not rows:
        raise FileRefusedError(
            Problem("file_header_only", N_("文件只有表头，没有数据行。请补上名单后重新上传。"))
        )
    with transaction.atomic():
        lines: list[Line] = []
        gateways = _gateways(rows, actor, lines)
        counts = dict.fromkeys(gateways, 0)
        known = _known(gateways, rows)
        faults: list[Problem] = []
        for row in rows:
            gateway = gateways[row.url]
            account = known.get((gateway.pk, row.guid))
            if fault := _reserve_fault(row, account):
                faults.append(fault)
            elif line := _save(gateway, row, account, actor):
                lines.append(line)
            counts[row.url] += 1
        if faults:
            raise InvalidInputError(*faults[:PROBLEMS_MAX])
        add_events(new_event(**line) for line in lines)
        for url, count in counts.items():
            add_event(
                kind="accounts.loaded", actor=actor, data={"gateway_url": url, "accounts": count}
            )
    return [
        LoadedGateway(url, f"/callbacks/{gateway.callback_secret}/", counts[url])
        for url, gateway in gateways.items()
    ]


def _read(source: Source) -> tuple[list[_Row], list[Problem]]:
    table = open_table(source, _COLUMNS)
    rows: list[_Row] = []
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
        problems += (_at(number, fault) for fault in faults)
    return rows, problems


def _parse(number: int, values: dict[str, str]) -> tuple[_Row, list[Problem]]:
    url = clean_id(values["gateway_url"]).rstrip("/")
    guid = clean_id(values["guid"])
    kind = clean_id(values.get("gateway_kind", ""))
    faults = _gateway_faults(url, kind)
    if fault := id_problem(guid):
        faults.append(fault)
    row = _Row(number, url, guid, kind)
    if name := values.get("name", ""):
        row.columns["name"] = name
        if len(name) > 100:
            faults.append(Problem("account_name_too_long", N_("名称最多 100 字。")))
    for key, (least, most) in _NUMBERS.items():
        text = clean_id(values.get(key, ""))
        if not text:
            continue
        if not (text.isascii() and text.isdigit() and least <= int(text[:12]) <= most):
            faults.append(
                Problem(
                    "number_range",
                    N_("“%(label)s”必须是 %(least)s 到 %(most)s 的整数，现在是“%(value)s”。"),
                    {"label": _LABELS[key], "least": least, "most": most, "value": text[:40]},
                )
            )
        else:
            row.columns[key] = int(text)
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


def _contradictions(rows: list[_Row]) -> list[Problem]:
    """Rows that name the same account twice, or give one gateway two kinds."""
    problems: list[Problem] = []
    seen: dict[tuple[str, str], int] = {}
    kinds: dict[str, str] = {}
    for row in rows:
        first = seen.setdefault((row.url, row.guid), row.number)
        if first != row.number:
            problems.append(
                _at(
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
                _at(
                    row.number,
                    Problem(
                        "gateway_kind_differs",
                        N_("网关 %(url)s 在文件中有两种类型。请改成同一种。"),
                        {"url": row.url},
                    ),
                )
            )
    return problems


def _at(number: int, problem: Problem) -> Problem:
    return Problem(problem.code, N_("第 %(row)s 行：%(why)s"), {"row": number, "why": problem})


def _gateways(rows: Sequence[_Row], actor: Actor, lines: list[Line]) -> dict[str, Gateway]:
    """The gateways of the file by address, made or given the kind that the file says."""
    kinds = dict.fromkeys(row.url for row in rows) | {row.url: row.kind for row in rows if row.kind}
    found: dict[str, Gateway] = {}
    for url, kind in kinds.items():
        gateway, made = Gateway.objects.get_or_create(
            base_url=url,
            defaults={
                "kind": kind or gateway_kinds()[0],
                "callback_secret": secrets.token_urlsafe(24),
            },
        )
        before = None if made else gateway_facts(gateway)
        if not made and kind and gateway.kind != kind:
            gateway.kind = kind
            gateway.save(update_fields=["kind"])
        if line := gateway_line(gateway=gateway, before=before, actor=actor):
            lines.append(line)
        found[url] = gateway
    return found


def _known(gateways: Mapping[str, Gateway], rows: Sequence[_Row]) -> dict[tuple[int, str], Account]:
    """The accounts that are there already; those that will change are locked.

    In id order and before any is written, as a claim locks them; the others are left alone, so
    that a load of what is there already holds up nobody.
    """
    found = {
        (account.gateway_id, account.guid): account
        for account in Account.objects.filter(
            gateway__in=gateways.values(), guid__in={row.guid for row in rows}
        )
    }
    changing = [
        account.pk
        for row in rows
        if (account := found.get((gateways[row.url].pk, row.guid))) and _changes(account, row)
    ]
    locked = Account.objects.select_for_update(no_key=True).filter(pk__in=changing).order_by("pk")
    return found | {(account.gateway_id, account.guid): account for account in locked}


def _changes(account: Account, row: _Row) -> dict[str, Any]:
    """Columns of the file that are not what the account has."""
    return {name: value for name, value in row.columns.items() if getattr(account, name) != value}


def _reserve_fault(row: _Row, account: Account | None) -> Problem | None:
    """The rates of the file do not fit together with what the account already has."""
    before = account or Account()
    total = row.columns.get("total_rate_per_min", before.total_rate_per_min)
    reserve = row.columns.get("online_reserve_per_min", before.online_reserve_per_min)
    if reserve < total:
        return None
    return _at(
        row.number,
        Problem(
            "reserve_not_below_total",
            N_("在线保留 %(reserve)s 必须小于总速率 %(total)s，否则批量作业无法发送。"),
            {"reserve": reserve, "total": total},
        ),
    )


def _save(gateway: Gateway, row: _Row, account: Account | None, actor: Actor) -> Line | None:
    """Write one account; its line in the audit, if there was anything to write."""
    if account is None:
        made = Account.objects.create(gateway=gateway, guid=row.guid, **row.columns)
        return account_line(account=made, before=None, actor=actor)
    changes = _changes(account, row)
    if not changes:
        return None
    account.gateway = gateway
    before = account_facts(account)
    Account.objects.filter(pk=account.pk).update(**changes)
    for name, value in changes.items():
        setattr(account, name, value)
    return account_line(account=account, before=before, actor=actor)
