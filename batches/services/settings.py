"""Gateways and accounts as people set them: each change with what was before and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from batches.domain.verbs import CHANGE_ACCOUNTS
from batches.models import Account, Gateway
from batches.store.events import Actor, Line, add_event

from .changes import Facts, difference
from .permissions import require

ACCOUNT_FIELDS = ("guid", "name", "total_rate_per_min", "online_reserve_per_min", "max_inflight")
GATEWAY_FIELDS = (
    "name",
    "kind",
    "base_url",
    "dialect",
    "rate_limit_per_min",
    "max_concurrent",
    "timeout_seconds",
    "is_active",
)
#: an option that may hold credentials
_HEADERS = "headers"


def account_facts(account: Account) -> Facts:
    values = {name: getattr(account, name) for name in ACCOUNT_FIELDS}
    return Facts({"gateway": account.gateway.base_url, **values})


def gateway_facts(gateway: Gateway) -> Facts:
    options = gateway.options or {}
    told = {key: value for key, value in options.items() if key != _HEADERS}
    return Facts(
        {**{name: getattr(gateway, name) for name in GATEWAY_FIELDS}, "options": told},
        {"token": gateway.token or None, "options.headers": options.get(_HEADERS) or None},
    )


def account_line(*, account: Account, before: Facts | None, actor: Actor) -> Line | None:
    """The audit's line of an account that was added (no `before`) or changed, if it was."""
    data = difference(before, account_facts(account))
    if not data:
        return None
    kind = "account.added" if before is None else "account.changed"
    return Line(kind=kind, account_id=account.pk, actor=actor, data=data)


def gateway_line(*, gateway: Gateway, before: Facts | None, actor: Actor) -> Line | None:
    data = difference(before, gateway_facts(gateway))
    if not data:
        return None
    kind = "gateway.added" if before is None else "gateway.changed"
    return Line(kind=kind, actor=actor, data={"object": _named(gateway), **data})


def _named(row: Account | Gateway) -> dict[str, Any]:
    return {"id": row.pk, "name": str(row)}


def add_account(*, account: Account, actor: Actor) -> Account:
    """Write a new account. Raises NotAllowedError."""
    require(actor=actor, permission="batches.add_account")
    with transaction.atomic():
        account.save(force_insert=True)
        _write(account_line(account=account, before=None, actor=actor))
    return account


def change_account(*, account_id: int, actor: Actor, changes: Mapping[str, Any]) -> Account:
    """Write these columns and no other: lanes write the row all the while.

    Raises NotAllowedError; IntegrityError where the rates do not fit together.
    """
    require(actor=actor, permission=CHANGE_ACCOUNTS)
    with transaction.atomic():
        account = Account.objects.select_for_update(no_key=True, of=("self",))
        row = account.select_related("gateway").get(pk=account_id)
        before = account_facts(row)
        for name, value in changes.items():
            setattr(row, name, value)
        row.save(update_fields=list(changes))
        _write(account_line(account=row, before=before, actor=actor))
    return row


def delete_account(*, account: Account, actor: Actor) -> None:
    require(actor=actor, permission="batches.delete_account")
    with transaction.atomic():
        data = {"object": _named(account), **difference(account_facts(account), None)}
        account.delete()
        add_event(kind="account.deleted", actor=actor, data=data)


def add_gateway(*, gateway: Gateway, actor: Actor) -> Gateway:
    """Write a new gateway. Raises NotAllowedError."""
    require(actor=actor, permission="batches.add_gateway")
    with transaction.atomic():
        gateway.save(force_insert=True)
        _write(gateway_line(gateway=gateway, before=None, actor=actor))
    return gateway


def change_gateway(*, gateway_id: int, actor: Actor, changes: Mapping[str, Any]) -> Gateway:
    """Write these columns and no other: a token that no key opens reads as none, and stays.

    Raises NotAllowedError.
    """
    require(actor=actor, permission="batches.change_gateway")
    with transaction.atomic():
        row = Gateway.objects.select_for_update(no_key=True).get(pk=gateway_id)
        before = gateway_facts(row)
        for name, value in changes.items():
            setattr(row, name, value)
        row.save(update_fields=list(changes))
        _write(gateway_line(gateway=row, before=before, actor=actor))
    return row


def delete_gateway(*, gateway: Gateway, actor: Actor) -> None:
    require(actor=actor, permission="batches.delete_gateway")
    with transaction.atomic():
        data = {"object": _named(gateway), **difference(gateway_facts(gateway), None)}
        gateway.delete()
        add_event(kind="gateway.deleted", actor=actor, data=data)


def _write(line: Line | None) -> None:
    if line is not None:
        add_event(**line)
