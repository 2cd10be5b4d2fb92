"""Settles side by side with each other, with a rescue, and with verbs."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psycopg
import pytest

from batches.domain.decisions import Decision, Fate
from batches.models import Item
from batches.store.advance import rescue_lost_calls
from batches.store.settle import Settled, settle
from tests.factories import ShardSpec, items_of, make_job, make_lane

from .support import (
    DECISIONS,
    answer,
    assert_sound,
    connected,
    minute_sums,
    plain_connection,
    run,
    settle_all,
    sql,
    wait_until_blocked,
    waiting_job,
)

pytestmark = pytest.mark.django_db(transaction=True)


# --- side by side --------------------------------------------------------------------------------


@pytest.mark.parametrize("fates", [("confirmed", "confirmed"), ("retry", "failed")])
def test_settle_two_at_once_of_the_same_calls_record_each_once(fates):
    """A lane and its heir both heard the answers; in opposite orders, so that they would block
    each other for ever if the order of locks were theirs."""
    job = make_job(shards=[ShardSpec(inflight=8, pending=2) for _ in range(4)])
    items = items_of(job, "submitted")

    async def patient(conn, answers):
        for _ in range(5):
            with suppress(psycopg.OperationalError):
                await settle(conn, answers)
                break
        else:
            raise AssertionError("never settled")

    async def go():
        async with connected(2) as conns:
            await asyncio.gather(
                patient(conns[0], [answer_of[i.pk, fates[0]] for i in items]),
                patient(conns[1], [answer_of[i.pk, fates[1]] for i in reversed(items)]),
            )

    answer_of = {(i.pk, fate): answer(i, fate) for i in items for fate in DECISIONS}
    run(go())
    assert_sound()
    assert not Item.objects.filter(job_id=job.pk, state="submitted").exists()
    assert sum(minute_sums(job)[k] for k in ("sent", "returned")) == 32


def test_settle_after_a_deadlock_is_safe_to_repeat():
    """The database breaks the knot by failing the settle; the same group again is recorded."""
    job = make_job(shards=[ShardSpec(inflight=1, pending=1) for _ in range(2)])
    first, second = items_of(job, "submitted")
    answers = [answer(first, "confirmed"), answer(second, "retry")]

    async def go(rival: psycopg.Connection) -> str:
        async with connected() as (conn,):
            settling = asyncio.create_task(settle(conn, answers))
            await asyncio.to_thread(wait_until_blocked, conn.info.backend_pid)
            # it has the job's lock and waits for the item: ask for what it has
            try:
                await asyncio.to_thread(
                    rival.execute, "select 1 from batches_job for no key update"
                )
                rival.commit()
                broken = "rival lived"
            except psycopg.OperationalError:
                rival.rollback()
                broken = "rival died"
            try:
                await settling
            except psycopg.OperationalError:
                await settle(conn, answers)
                broken = "settle died"
            return broken

    with plain_connection() as rival:
        rival.execute("select 1 from batches_item where id = %s for update", [second.pk])
        run(go(rival))
    assert_sound()
    assert [i.state for i in items_of(job) if i.pk in (first.pk, second.pk)] == [
        "confirmed",
        "pending",
    ]


def test_settle_and_rescue_of_the_same_calls_do_not_deadlock():
    """Both take calls, items, shards in one order: neither has to be broken off."""
    dead = make_lane(alive=False)
    job = make_job(shards=[ShardSpec(inflight=30, pending=1) for _ in range(6)], lane=dead)
    items = items_of(job, "submitted")
    answers = [answer(item, "confirmed") for item in items]

    def rescue() -> None:
        from django.db import connection

        try:
            rescue_lost_calls()
        finally:
            connection.close()

    async def go() -> None:
        async with connected() as (conn,):
            await asyncio.gather(settle(conn, answers), asyncio.to_thread(rescue))

    run(go())
    assert_sound()
    assert not Item.objects.filter(job_id=job.pk, state="submitted").exists()


def test_rescue_that_waits_for_a_shard_does_not_hold_the_jobs_minute():
    """A settle takes shards, then minutes; held the other way round the two would deadlock."""
    job = make_job(shards=[ShardSpec(inflight=1, pending=1)], lane=make_lane(alive=False))

    def rescue() -> None:
        from django.db import connection

        try:
            rescue_lost_calls()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool, plain_connection() as other:
        other.execute("select 1 from batches_shard where job_id = %s for no key update", [job.pk])
        done = pool.submit(rescue)
        pid = other.info.backend_pid
        end = time.monotonic() + 5
        while not sql("select 1 from pg_stat_activity where %s = any(pg_blocking_pids(pid))", pid):
            assert time.monotonic() < end, "the rescue does not wait"
            time.sleep(0.01)
        other.execute("set local lock_timeout = '200ms'")
        other.execute(
            "insert into batches_jobminute"
            " (job_id, minute, sent, confirmed, failed, in_doubt, returned)"
            " values (%s, date_trunc('minute', clock_timestamp()), 0, 0, 0, 0, 0)"
            " on conflict (job_id, minute) do nothing",
            [job.pk],
        )
        other.commit()
        done.result(timeout=5)
    assert_sound()


def test_settle_of_plain_successes_does_not_wait_for_the_job_row():
    job, item = waiting_job("inflight")
    with plain_connection() as verb:
        verb.execute("select 1 from batches_job where id = %s for no key update", [job.pk])

        async def go() -> None:
            async with asyncio.timeout(5):
                async with connected() as (conn,):
                    await settle(conn, [answered])

        answered = answer(item, "confirmed")
        run(go())
    assert Item.objects.get(pk=item.pk).state == "confirmed"


def test_settle_refund_waits_for_a_cancel_in_progress_and_then_knows_of_it():
    job, item = waiting_job("in_doubt")
    answered = answer(item, "retry")
    with plain_connection() as verb:
        verb.execute("select 1 from batches_job where id = %s for no key update", [job.pk])
        verb.execute("update batches_job set status = 'cancelled'")

        async def go() -> None:
            async with connected() as (conn,):
                settling = asyncio.create_task(settle(conn, [answered]))
                await asyncio.to_thread(wait_until_blocked, conn.info.backend_pid)
                verb.commit()
                await settling

        run(go())
    assert Item.objects.get(pk=item.pk).state == "abandoned"


def test_settle_texts_that_the_database_cannot_hold_are_cut_to_fit():
    _, item = waiting_job("inflight")
    ugly = Decision(
        Fate.FAILED, "refused", category="other", code="9" * 200, message="é\x00" * 900,
        msg_id="m" * 500, refund=True,
    )  # fmt: skip
    settle_all(answer(item, "failed", decision=ugly))
    item.refresh_from_db()
    assert (item.state, item.code, len(item.msg_id or "")) == ("failed", "9" * 40, 128)
    assert item.message is not None
    assert "\x00" not in item.message


def test_settle_and_a_persons_findings_lock_items_in_one_order():
    """Findings go by item id; answers come as they come."""
    job = make_job(shards=[ShardSpec(in_doubt=2, pending=1)])
    first, second = items_of(job, "submitted")
    answers = [answer(second, "confirmed"), answer(first, "confirmed")]

    async def go(rival: psycopg.Connection) -> None:
        async with connected() as (conn,):
            settling = asyncio.create_task(settle(conn, answers))
            await asyncio.to_thread(wait_until_blocked, conn.info.backend_pid)
            # it waits for the first, and so must not have the second yet
            await asyncio.to_thread(
                rival.execute,
                "select 1 from batches_item where id = %s for no key update nowait",
                [second.pk],
            )
            rival.rollback()
            await settling

    with plain_connection() as rival:
        rival.execute("select 1 from batches_item where id = %s for no key update", [first.pk])
        run(go(rival))
    assert_sound()
    assert len(items_of(job, "confirmed")) == 2


def test_settle_of_calls_with_several_items_gives_each_its_own_answer():
    lane = make_lane()
    job = make_job(shards=[ShardSpec(inflight=4)], lane=lane)
    items = items_of(job, "submitted")
    Item.objects.filter(pk__in=[items[0].pk, items[3].pk]).update(call_id=items[0].call_id)
    Item.objects.filter(pk__in=[items[1].pk, items[2].pk]).update(call_id=items[1].call_id)
    fates = {0: "failed", 1: "accepted", 2: "doubt", 3: "confirmed"}

    def together_of(*places: int) -> Settled:
        head = items[min(places)]
        return Settled(
            call_id=head.call_id,
            job_id=job.pk,
            account_id=head.shard.account_id,
            item_ids=tuple(items[n].pk for n in places),
            decisions=tuple(DECISIONS[fates[n]] for n in places),
        )

    settle_all(together_of(3, 0), together_of(2, 1))
    found = items_of(job)
    assert [item.state for item in found] == ["failed", "submitted", "submitted", "confirmed"]
    assert [item.accepted_at is not None for item in found] == [False, True, False, False]
    assert [item.in_doubt_at is not None for item in found] == [False, False, True, False]
