"""Accounts with their rate, condition and work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Q
from django.utils import timezone

from batches.models import Account, Shard
from batches.store.queries import run_query

PAGE_SIZE = 50


@dataclass(frozen=True, slots=True)
class AccountRow:
    """One account; `rate_now` is what batches may use at present, per minute."""

    account: Account
    jobs: int
    pending: int

    @property
    def rate_now(self) -> float:
        return self.account.batch_rate_per_min * self.account.throttle

    @property
    def held(self) -> bool:
        until = self.account.hold_until
        return until is not None and until > timezone.now()


@dataclass(frozen=True, slots=True)
class AccountPage:
    """`next_after` is the id to go on from, None at the end."""

    rows: Sequence[AccountRow]
    next_after: int | None


def account_page(
    *, search: str = "", job_id: int | None = None, trouble: bool = False, after: int = 0
) -> AccountPage:
    """By id; `trouble` keeps those that cannot send or are slowed down."""
    found = Account.objects.select_related("gateway").filter(id__gt=after).order_by("id")
    if search:
        found = found.filter(Q(guid__icontains=search) | Q(name__icontains=search))
    if job_id is not None:
        found = found.filter(pk__in=Shard.objects.filter(job_id=job_id).values("account_id"))
    if trouble:
        found = found.filter(
            Q(is_active=False)
            | Q(gateway__is_active=False)
            | ~Q(health=Account.Health.OK)
            | Q(throttle__lt=1)
            | Q(hold_until__gt=timezone.now())
        )
    accounts = list(found[: PAGE_SIZE + 1])
    more = len(accounts) > PAGE_SIZE
    accounts = accounts[:PAGE_SIZE]
    work = {
        row["account_id"]: row
        for row in run_query("accounts_at_work", accounts=[account.pk for account in accounts])
    }
    return AccountPage(
        [
            AccountRow(
                account,
                jobs=work.get(account.pk, {}).get("jobs", 0),
                pending=work.get(account.pk, {}).get("pending", 0),
            )
            for account in accounts
        ],
        accounts[-1].pk if more else None,
    )
