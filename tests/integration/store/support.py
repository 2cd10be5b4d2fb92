"""Claims, settles and recounts for tests of the store and the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg
from django.db import connection as django_connection

from batches.domain.decisions import Decision, Fate
from batches.domain.states import JobStatus
from batches.models import Call, Item, Job, JobMinute, Lane, Shard
from batches.store import claim as claim_store
from batches.store.connections import Connection, connect
from batches.store.settle import Settled, settle
from tests.factories import ShardSpec, items_of, make_account, make_job, make_lane

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


@asynccontextmanager
async def connected(count: int = 1) -> AsyncIterator[list[Connection]]:
    """Connections as a lane's claim and settle use them."""
    conns = [await connect(f"test{n}", lookup_plans=True) for n in range(count)]
    try:
        yield conns
    finally:
        for conn in conns:
            await conn.close()


def plain_connection(**more: Any) -> psycopg.Connection[Any]:
    """Another session, synchronous, for holding locks."""
    params = dict(django_connection.get_connection_params())
    for key in ("context", "cursor_factory", "prepare_threshold", "server_side_binding"):
        params.pop(key, None)
    return psycopg.connect(**(params | more))


def sql(statement: str, *params: object) -> list[tuple[Any, ...]]:
    with django_connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchall() if cursor.description else []


@dataclass(frozen=True)
class Scope:
    """What a lane knows of some items: their jobs, and the account of each."""

    jobs: list[int]
    account_of: dict[int, int]

    def wants(self, items: Sequence[int], size: int) -> list[claim_store.Want]:
        """One call per account, in the order of its first item."""
        calls: dict[int, list[int]] = {}
        for item in items:
            calls.setdefault(self.account_of[item], []).append(item)
        return [claim_store.Want(account, size, found) for account, found in calls.items()]


def scope(items: Sequence[int]) -> Scope:
    rows = Item.objects.filter(pk__in=items).values_list("pk", "job_id", "shard__account_id")
    found = list(rows)
    return Scope(sorted({job for _, job, _ in found}), {pk: account for pk, _, account in found})


def claim(*, lane: int, items: Sequence[int], size: int = 1) -> claim_store.ClaimResult:
    """One claim of these items, as the lane would ask for them."""
    of = scope(items)

    async def go() -> claim_store.ClaimResult:
        async with connected() as (conn,):
            return await claim_async(conn=conn, lane=lane, items=items, of=of, size=size)

    return run(go())


async def claim_async(
    *, conn: Connection, lane: int, items: Sequence[int], of: Scope, size: int = 1
) -> claim_store.ClaimResult:
    return await claim_store.claim(conn, lane=lane, jobs=of.jobs, wants=of.wants(items, size))


def open_gates() -> None:
    """As if enough time had passed for every account to send again."""
    sql("update batches_account set gate_at = null, hold_until = null")
    sql("update batches_job set rate_at = null")


DECISIONS = {
    "confirmed": Decision(Fate.CONFIRMED, "accepted", msg_id="m1"),
    "accepted": Decision(Fate.ACCEPTED, "accepted", msg_id="m1"),
    "failed": Decision(
        Fate.FAILED, "refused", category="other", code="500", message="no", refund=True, bad=True
    ),
    "retry": Decision(
        Fate.RETRY, "refused", category="retry_system", code="-1", wait=30.0, refund=True
    ),
    "retry_uncounted": Decision(
        Fate.RETRY, "not_sent", category="unreachable", refund=True, counted=False, bad=True
    ),
    "doubt": Decision(Fate.DOUBT, "unknown", category="timeout", bad=True),
}


def answer(item: Item, fate: str, **more: Any) -> Settled:
    """What came of the item's current call."""
    assert item.call_id is not None
    account = more.pop("account_id", None) or item.shard.account_id
    return Settled(
        call_id=more.pop("call_id", item.call_id),
        job_id=item.job_id,
        account_id=account,
        item_ids=(item.pk,),
        decisions=(more.pop("decision", None) or DECISIONS[fate],),
        http_status=200,
        duration_ms=5,
        **more,
    )


def settle_all(*answers: Settled) -> set[int]:
    async def go() -> set[int]:
        async with connected() as (conn,):
            return await settle(conn, answers)

    return run(go())


def owned_job(lane: Lane, *shards: ShardSpec, **columns: Any) -> Job:
    """A job whose accounts the lane owns; fast enough accounts that no gate is in the way."""
    job = make_job(shards=shards or (ShardSpec(pending=3),), lane=lane, **columns)
    own(lane, job)
    return job


def own(lane: Lane, job: Job, *, per_min: int = 600_000) -> None:
    accounts = [s.account for s in job.shards.select_related("account")]
    for account in accounts:
        account.lane = lane
        account.total_rate_per_min = per_min
        account.save()


def snapshot(job: Job) -> dict[str, Any]:
    """All that a settle may change, of one job."""
    return {
        "job": list(Job.objects.filter(pk=job.pk).values()),
        "shards": list(Shard.objects.filter(job=job).order_by("id").values()),
        "items": list(Item.objects.filter(job_id=job.pk).order_by("id").values()),
        "calls": list(Call.objects.filter(job_id=job.pk).order_by("id").values()),
        "minutes": list(JobMinute.objects.filter(job=job).order_by("minute").values()),
        "accounts": sql("select * from batches_account order by id"),
    }


def assert_sound(*jobs: Job) -> None:
    """Recount from the items: counters, budget and calls of these jobs (or all) agree."""
    ids = [job.pk for job in jobs] or [pk for (pk,) in sql("select id from batches_job")]
    for job_id in ids:
        drift = sql(
            """
            select s.ordinal, s.pending, s.submitted, s.in_doubt, s.confirmed, s.failed,
              s.abandoned, s.total, c.*
            from batches_shard s cross join lateral (
              select count(*) filter (where i.state = 'pending' or flying) as pending,
                count(*) filter (where i.state = 'submitted' and not flying) as submitted,
                count(*) filter (where i.in_doubt_at is not null) as in_doubt,
                count(*) filter (where i.state = 'confirmed') as confirmed,
                count(*) filter (where i.state = 'failed') as failed,
                count(*) filter (where i.state = 'abandoned') as abandoned,
                count(*) as total
              from (select i.*, i.state = 'submitted' and i.accepted_at is null
                      and i.in_doubt_at is null as flying
                    from batches_item i where i.shard_id = s.id) i
            ) c
            where s.job_id = %s and (s.pending, s.submitted, s.in_doubt, s.confirmed, s.failed,
              s.abandoned, s.total)
              <> (c.pending, c.submitted, c.in_doubt, c.confirmed, c.failed, c.abandoned, c.total)
            """,
            job_id,
        )
        assert not drift, f"counters of job {job_id} drifted from its items: {drift}"
        ((used, spent),) = sql(
            """
            select j.budget_used, count(i.id) filter (where i.state in ('submitted', 'confirmed')
              or i.category = 'not_delivered')
            from batches_job j join batches_item i on i.job_id = j.id
            where j.id = %s group by j.id
            """,
            job_id,
        )
        assert used == spent, f"job {job_id}: budget_used {used}, items sent {spent}"
        stray = sql(
            """
            select i.id, i.state, i.accepted_at, i.in_doubt_at, c.answered_at, c.lost_at
            from batches_item i left join batches_call c on c.id = i.call_id
            where i.job_id = %s and i.state = 'submitted' and (
              c.id is null or not i.id = any(c.item_ids)
              or (i.accepted_at is null and i.in_doubt_at is null)
                 <> (c.answered_at is null and c.lost_at is null))
            """,
            job_id,
        )
        assert not stray, f"items of job {job_id} whose call says otherwise: {stray}"
        open_calls = sql(
            """
            select c.id, c.item_ids from batches_call c
            where c.job_id = %s and c.answered_at is null and c.lost_at is null
              and not exists (select from batches_item i where i.call_id = c.id
                and i.state = 'submitted')
            """,
            job_id,
        )
        assert not open_calls, f"open calls that no item of job {job_id} waits for: {open_calls}"


MINUTE = ("sent", "confirmed", "failed", "in_doubt", "returned")


def waiting_job(origin: str, status: str = "running", **spec: int) -> tuple[Job, Item]:
    """A job with one item in flight or in doubt, three pending and one confirmed beside it."""
    cancelled = status == "cancelled"
    beside = {"confirmed": 1} | ({"abandoned": 3} if cancelled else {"pending": 3})
    if status == "verifying":
        beside = {"confirmed": 4}
    job = make_job(status=JobStatus(status), shards=[ShardSpec(**{origin: 1}, **(spec or beside))])
    (item,) = items_of(job, "submitted")
    return job, item


def minute_sums(job: Job) -> dict[str, int]:
    sums = dict.fromkeys(MINUTE, 0)
    for row in JobMinute.objects.filter(job=job):
        for name in MINUTE:
            sums[name] += getattr(row, name)
    return sums


def wait_until_blocked(pid: int) -> None:
    """Until that session waits for a lock; fails after five seconds."""
    with plain_connection(autocommit=True) as watching:
        for _ in range(500):
            row = watching.execute("select cardinality(pg_blocking_pids(%s))", [pid]).fetchone()
            if row and row[0]:
                return
            watching.execute("select pg_sleep(0.01)")
    raise AssertionError("the session never waited")


__all__ = [
    "DECISIONS",
    "MINUTE",
    "answer",
    "assert_sound",
    "claim",
    "claim_async",
    "connected",
    "make_account",
    "make_job",
    "make_lane",
    "minute_sums",
    "open_gates",
    "own",
    "owned_job",
    "plain_connection",
    "run",
    "scope",
    "settle_all",
    "snapshot",
    "sql",
    "wait_until_blocked",
    "waiting_job",
]
