"""Taking an account out of batch sending, and back in."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import transaction

from batches.domain.errors import InvalidInputError
from batches.domain.problems import Problem
from batches.domain.text import N_
from batches.models import Account
from batches.store.events import add_event

from .accounts import CHANGE_ACCOUNTS
from .acting import clean_reason
from .permissions import require


def set_account_active(
    *, account_id: int, actor: User | None, active: bool, reason: str = ""
) -> Account:
    """Lanes see it within two seconds; items in flight are still recorded, others wait.

    Raises NotAllowedError, InvalidInputError (unknown account, no reason for switching off).
    """
    require(actor=actor, permission=CHANGE_ACCOUNTS)
    reason = clean_reason(reason, needed=not active)
    with transaction.atomic():
        changed = Account.objects.filter(pk=account_id, is_active=not active).update(
            is_active=active
        )
        account = Account.objects.filter(pk=account_id).select_related("gateway").first()
        if account is None:
            raise InvalidInputError(
                Problem("unknown_account", N_("没有编号为 %(id)s 的账号。"), {"id": account_id})
            )
        if changed:
            add_event(
                kind="account.enabled" if active else "account.disabled",
                account_id=account_id,
                actor=actor,
                reason=reason,
            )
    return account
