"""Rows for tests: gateways, accounts, users, and jobs whose counters agree with their items."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import psycopg
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.utils import timezone

from batches.domain.states import ItemState, JobStatus, ShardStatus
from batches.models import Account, Call, Gateway, Item, Job, Lane, Shard

_numbers = itertools.count(1)


def make_gateway(**columns: Any) -> Gateway:
    number = next(_numbers)
    defaults: dict[str, Any] = {
        "name": f"gateway {number}",
        "base_url": f"http://127.0.0.1:9/gateway-{number}",
        "token": "token",
        "callback_secret": f"secret-{number}",
        "timeout_seconds": 5.0,
    }
    return Gateway.objects.create(**(defaults | columns))


def make_account(*, gateway: Gateway | None = None, **columns: Any) -> Account:
    number = next(_numbers)
    defaults: dict[str, Any] = {"guid": f"guid-{number}", "name": f"账号 {number}"}
    return Account.objects.create(gateway=gateway or make_gateway(), **(defaults | columns))


def make_user(*permissions: str, **columns: Any) -> User:
    """A staff user with the named permissions of this app (`operate_job`, …) and no other."""
    name = columns.pop("username", f"user{next(_numbers)}")
    user = get_user_model().objects.create_user(name, is_staff=True, **columns)
    wanted = Permission.objects.filter(content_type__app_label="batches", codename__in=permissions)
    assert wanted.count() == len(set(permissions)), f"unknown permission in {permissions}"
    user.user_permissions.set(wanted)
    return user


def make_lane(*, alive: bool = True, at: datetime | None = None) -> Lane:
    """A lane turn; a dead one lost its lease five minutes ago without ending."""
    expires = (at or timezone.now()) + timedelta(seconds=600 if alive else -300)
    return Lane.objects.create(worker=f"worker {next(_numbers)}", lease_expires_at=expires)


@dataclass(frozen=True)
class ShardSpec:
    """How many items of a shard are in each state."""

    pending: int = 0
    #: submitted, no answer yet; counted in the shard's `pending`
    inflight: int = 0
    #: submitted, taken by the gateway, waiting for a confirmation
    accepted: int = 0
    in_doubt: int = 0
    confirmed: int = 0
    failed: int = 0
    abandoned: int = 0
    account: Account | None = None
    #: derived from the counts and the job's status when left out
    status: ShardStatus | None = None
    reason: str = ""
    #: category and code of the failed items
    category: str = "other"
    code: str | None = "500"

    @property
    def total(self) -> int:
        return self.unsettled + self.confirmed + self.failed + self.abandoned

    @property
    def unsettled(self) -> int:
        return self.pending + self.inflight + self.accepted + self.in_doubt

    @property
    def spent(self) -> int:
        """Items whose send counts against the budget."""
        kept = self.failed if self.category == "not_delivered" else 0
        return self.inflight + self.accepted + self.in_doubt + self.confirmed + kept


def make_job(
    *,
    status: JobStatus = JobStatus.RUNNING,
    shards: Iterable[ShardSpec] = (ShardSpec(pending=3),),
    lane: Lane | None = None,
    **columns: Any,
) -> Job:
    """A job with shards and items as given; targets are `t1`, `t2`, … within each shard.

    Counters, totals and used budget agree with the items. A shard without an account gets one
    of its own. Calls belong to `lane` (made, and alive, when left out).
    """
    specs = list(shards)
    now = timezone.now()
    defaults: dict[str, Any] = {
        "name": f"作业 {next(_numbers)}",
        "action": "send_text",
        "params": {"content": "你好 {name}"},
        "columns": ["account", "target", "name"],
        "mapping": {"account": 0, "target": 1, "name": 2},
        "total": sum(spec.total for spec in specs),
        "budget_used": sum(spec.spent for spec in specs),
        "started_at": None if status in _NOT_STARTED else now,
        "finished_at": now if status in _FINISHED else None,
    }
    job = Job.objects.create(status=status, **(defaults | columns))
    for ordinal, spec in enumerate(specs, start=1):
        _make_shard(job=job, ordinal=ordinal, spec=spec, lane=lane)
    return job


_NOT_STARTED = {JobStatus.PREPARING, JobStatus.AWAITING, JobStatus.REJECTED}
_FINISHED = {JobStatus.COMPLETED, JobStatus.CANCELLED, JobStatus.TERMINATED}


def _shard_status(job: Job, spec: ShardSpec) -> ShardStatus:
    if spec.status is not None:
        return spec.status
    if job.status == JobStatus.CANCELLED:
        return ShardStatus.CANCELLED
    if spec.unsettled == 0:
        all_failed = spec.failed == spec.total and spec.total > 0
        return ShardStatus.FAILED if all_failed else ShardStatus.COMPLETED
    return ShardStatus.PENDING if job.status in _NOT_STARTED else ShardStatus.RUNNING


def _make_shard(*, job: Job, ordinal: int, spec: ShardSpec, lane: Lane | None) -> Shard:
    account = spec.account or make_account()
    shard = Shard.objects.create(
        job=job,
        account=account,
        ordinal=ordinal,
        status=_shard_status(job, spec),
        reason=spec.reason,
        total=spec.total,
        pending=spec.pending + spec.inflight,
        submitted=spec.accepted + spec.in_doubt,
        in_doubt=spec.in_doubt,
        confirmed=spec.confirmed,
        failed=spec.failed,
        abandoned=spec.abandoned,
        cursor=spec.confirmed + spec.failed + spec.abandoned,
        last_advanced_at=timezone.now() if spec.total > spec.pending else None,
    )
    _make_items(shard=shard, spec=spec, lane=lane)
    return shard


def _make_items(*, shard: Shard, spec: ShardSpec, lane: Lane | None) -> None:
    """Settled items first, as a lane would have left them."""
    now = timezone.now()
    plan = [
        *["confirmed"] * spec.confirmed,
        *["failed"] * spec.failed,
        *["abandoned"] * spec.abandoned,
        *["accepted"] * spec.accepted,
        *["in_doubt"] * spec.in_doubt,
        *["inflight"] * spec.inflight,
        *["pending"] * spec.pending,
    ]
    item_ids = _next_ids("batches_item_id_seq", len(plan))
    call_ids = _next_ids("batches_call_id_seq", len(plan))
    items: list[Item] = []
    calls: list[Call] = []
    owner = lane
    for seq, kind in enumerate(plan, start=1):
        target = f"t{seq}"
        item = Item(
            id=item_ids[seq - 1],
            job_id=shard.job_id,
            shard_id=shard.pk,
            seq=seq,
            row_no=seq + 1,
            target=target,
            fields=[shard.account.guid, target, f"客户 {seq}"],
            state=_STATES.get(kind, kind),
            attempt=0,
        )
        items.append(item)
        if kind in ("confirmed", "failed", "abandoned"):
            item.settled_at = now
        if kind in ("pending", "abandoned"):
            continue
        owner = owner or make_lane()
        item.attempt, item.submitted_at, item.call_id = 1, now, call_ids[seq - 1]
        if kind == "failed":
            item.category, item.code, item.message = spec.category, spec.code, "refused"
        if kind == "in_doubt":
            item.in_doubt_at, item.category = now, "timeout"
        if kind == "accepted":
            item.accepted_at, item.msg_id = now, f"m{item.pk}"
        # spread over the past, so that no rate window holds more than a few of them
        sent_at = now if kind == "inflight" else now - timedelta(minutes=seq)
        calls.append(_call(shard=shard, item=item, kind=kind, lane=owner, at=sent_at))
    Item.objects.bulk_create(items)
    Call.objects.bulk_create(calls)


_STATES = {"accepted": "submitted", "in_doubt": "submitted", "inflight": "submitted"}


def _next_ids(sequence: str, count: int) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute("select nextval(%s) from generate_series(1, %s)", [sequence, count])
        return [row[0] for row in cursor.fetchall()]


def _call(*, shard: Shard, item: Item, kind: str, lane: Lane, at: datetime) -> Call:
    outcome = {"confirmed": "accepted", "accepted": "accepted", "in_doubt": "unknown"}.get(kind)
    if kind == "failed":
        outcome = "accepted" if item.category == "not_delivered" else "refused"
    return Call(
        id=item.call_id,
        job_id=shard.job_id,
        shard_id=shard.pk,
        account_id=shard.account_id,
        lane_id=lane.pk,
        item_ids=[item.pk],
        sent_at=at,
        answered_at=None if kind in ("inflight", "in_doubt") else at,
        lost_at=at if kind == "in_doubt" else None,
        outcome=outcome,
        category=item.category if kind in ("failed", "in_doubt") else None,
        code=item.code if kind == "failed" else None,
    )


@contextmanager
def other_connection() -> Iterator[psycopg.Connection[Any]]:
    """A session beside Django's on the same database; what is not committed is rolled back."""
    settings = connection.settings_dict
    other = psycopg.connect(
        dbname=settings["NAME"],
        user=settings["USER"] or None,
        password=settings["PASSWORD"] or None,
        host=settings["HOST"] or None,
        port=settings["PORT"] or None,
    )
    try:
        yield other
    finally:
        other.close()


def items_of(job: Job, state: ItemState | str | None = None) -> list[Item]:
    """Items of a job in a fixed order, all or those in one state."""
    found = Item.objects.filter(job_id=job.pk).order_by("shard_id", "seq")
    return list(found.filter(state=state) if state else found)
