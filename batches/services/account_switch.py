"""Taking an account out of batch sending and back in, and its login given back."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import transaction

from batches.domain.errors import InvalidInputError
from batches.domain.problems import Problem
from batches.domain.text import N_
from batches.domain.verbs import CHANGE_ACCOUNTS, VERBS, Verb
from batches.models import Account
from batches.queue import wake_lanes
from batches.store.events import Actor, add_event
from batches.store.trips import restore_credential

from .acting import clean_reason
from .permissions import require


def set_account_active(*, account_id: int, actor: Actor, active: bool, reason: str = "") -> Account:
    """Lanes see it within two seconds; items in flight are still recorded, others wait.

    Raises NotAllowedError, InvalidInputError (unknown account, no reason for switching off).
    """
    require(actor=actor, permission=CHANGE_ACCOUNTS)
    reason = clean_reason(reason, needed=not active)
    with transaction.atomic():
        changed = Account.objects.filter(pk=account_id, is_active=not active).update(
            is_active=active
        )
        account = _account(account_id)
        if changed:
            add_event(
                kind="account.enabled" if active else "account.disabled",
                account_id=account_id,
                actor=actor,
                reason=reason,
            )
            if active:
                transaction.on_commit(wake_lanes, robust=True)
    return account


@dataclass(frozen=True, slots=True)
class Restored:
    """`shards` run again; `changed` is False if there was nothing to restore."""

    account: Account
    shards: int
    changed: bool


def restore_account(*, account_id: int, actor: Actor, reason: str = "") -> Restored:
    """A person says that the account is logged in again: its shards run, in every job.

    The same that resuming a shard or a job says of one job. If it is not true, the next answer
    stops the account again, at the price of one refused item.

    Raises NotAllowedError, InvalidInputError (unknown account, reason too long).
    """
    require(actor=actor, permission=VERBS[Verb.RESUME_SHARD].permission)
    reason = clean_reason(reason, needed=False)
    _account(account_id)
    shards = restore_credential(account_id, actor=actor, reason=reason)
    if shards:
        transaction.on_commit(wake_lanes, robust=True)
    return Restored(_account(account_id), shards or 0, changed=shards is not None)


def _account(account_id: int) -> Account:
    account = Account.objects.filter(pk=account_id).select_related("gateway").first()
    if account is None:
        raise InvalidInputError(
            Problem("unknown_account", N_("没有编号为 %(id)s 的账号。"), {"id": account_id})
        )
    return account
