"""Accounts from a file: gateways and accounts are created or changed, all or nothing."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from batches.domain.errors import InvalidInputError
from batches.domain.problems import Problem
from batches.domain.text import N_
from batches.domain.verbs import CHANGE_ACCOUNTS
from batches.gateways.registry import gateway_kinds
from batches.intake.source import FileRefusedError, Source
from batches.models import Account, Gateway
from batches.store.events import Actor, Line, add_event, add_events, new_event

from .account_file import AccountRow, at_row, read_accounts
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


@dataclass(frozen=True, slots=True)
class LoadedGateway:
    """A gateway of the file, the path that it must call back, and its accounts in the file."""

    gateway_url: str
    callback_path: str
    accounts: int


def load_accounts(*, actor: Actor, source: Source) -> list[LoadedGateway]:
    """Create or change the gateways and accounts of a CSV or .xlsx file.

    What a file leaves out stays as it is, or takes its default. Each account and gateway that is
    made or changed has its own line in the audit. Raises InvalidInputError with every faulty row,
    and changes nothing then; NotAllowedError.
    """
    require(actor=actor, permission=CHANGE_ACCOUNTS)
    rows, problems = read_accounts(source)
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


def _gateways(rows: Sequence[AccountRow], actor: Actor, lines: list[Line]) -> dict[str, Gateway]:
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


def _known(
    gateways: Mapping[str, Gateway], rows: Sequence[AccountRow]
) -> dict[tuple[int, str], Account]:
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


def _changes(account: Account, row: AccountRow) -> dict[str, Any]:
    """Columns of the file that are not what the account has."""
    return {name: value for name, value in row.columns.items() if getattr(account, name) != value}


def _reserve_fault(row: AccountRow, account: Account | None) -> Problem | None:
    """The rates of the file do not fit together with what the account already has."""
    before = account or Account()
    total = row.columns.get("total_rate_per_min", before.total_rate_per_min)
    reserve = row.columns.get("online_reserve_per_min", before.online_reserve_per_min)
    if reserve < total:
        return None
    return at_row(
        row.number,
        Problem(
            "reserve_not_below_total",
            N_("在线保留 %(reserve)s 必须小于总速率 %(total)s，否则批量作业无法发送。"),
            {"reserve": reserve, "total": total},
        ),
    )


def _save(gateway: Gateway, row: AccountRow, account: Account | None, actor: Actor) -> Line | None:
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
