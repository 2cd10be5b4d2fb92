"""Turns that are stopped: by a person, by their worker, by losing their lease."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from batches.models import Account, Gateway, Item, Job
from batches.services.jobs import cancel_job, pause_job, resume_job, terminate_job
from batches.store.advance import advance_jobs, rescue_lost_calls
from tests.integration.store.support import assert_sound, plain_connection, run, sql

from .stage import (
    QUICK,
    Stage,
    Stop,
    in_thread,
    states,
    status,
    turning,
    turns_until,
    until,
    until_claim_waits,
    until_status,
)

pytestmark = pytest.mark.django_db(transaction=True)


# --- stopped by a person -------------------------------------------------------------------------


def test_turn_pause_sends_at_most_what_was_claimed_and_resume_finishes(stage: Stage):
    job = stage.job(accounts=10, items=25, per_min=1200)

    async def scene() -> None:
        async with stage.open():
            async with turning():
                await until(lambda: len(stage.sends()) >= 50)
                await in_thread(pause_job, job_id=job.pk, actor=None)
                mark = len(stage.sends())
            assert max(stage.since(mark).values(), default=0) <= 1
            assert await status(job) == "paused"
            in_database = await in_thread(states, job)
            assert in_database == {
                "confirmed": len(stage.sends()),
                "pending": 250 - len(stage.sends()),
            }
            await in_thread(resume_job, job_id=job.pk, actor=None)
            await turns_until(job, "completed")

    run(scene())
    assert len(stage.sends()) == 250
    stage.assert_each_once()
    assert_sound()


def test_turn_pause_and_resume_within_one_turn_continue_at_once(stage: Stage):
    job = stage.job(accounts=6, items=20, per_min=1200)
    ask = Stop()

    async def scene() -> None:
        async with stage.open(), turning(stop=ask, options=replace(QUICK, idle=8)) as turn:
            for n in (20, 50, 80):
                await until(lambda n=n: len(stage.sends()) >= n)
                await in_thread(pause_job, job_id=job.pk, actor=None)
                await in_thread(resume_job, job_id=job.pk, actor=None)
            await until(lambda: len(stage.sends()) >= 120)
            assert not turn.done()
            await until_status(job, "completed")
            ask.asked = True

    run(scene())
    stage.assert_each_once()
    assert_sound()


def test_turn_cancel_sends_at_most_what_was_claimed_and_abandons_the_rest(stage: Stage):
    job = stage.job(accounts=10, items=25, per_min=1200)

    async def scene() -> None:
        async with stage.open(), turning():
            await until(lambda: len(stage.sends()) >= 50)
            await in_thread(cancel_job, job_id=job.pk, actor=None, reason="wrong text")
            mark = len(stage.sends())
            await until_status(job, "cancelled")
            assert max(stage.since(mark).values(), default=0) <= 1

    run(scene())
    sent = len(stage.sends())
    assert states(job) == {"confirmed": sent, "abandoned": 250 - sent}
    stage.assert_each_once()
    assert_sound()


def test_turn_terminate_cuts_off_a_call_that_hangs(stage: Stage):
    Gateway.objects.update(timeout_seconds=300)
    job = stage.job(accounts=3, items=4)

    async def scene() -> None:
        async with stage.open() as sim:
            sim.faults.install({"kind": "hang", "seconds": 60, "scope": {"target": "t3"}})
            async with turning():
                await until(lambda: len(stage.sends()) >= 9)
                await in_thread(
                    terminate_job,
                    job_id=job.pk,
                    actor=None,
                    reason="stop it",
                    confirm_name=job.name,
                )
                await until_status(job, "terminated", within=5)

    run(scene())
    assert states(job) == {"confirmed": 6, "in_doubt": 3, "pending": 3}
    doubts = Item.objects.filter(job_id=job.pk, in_doubt_at__isnull=False)
    assert {i.category for i in doubts} == {"aborted"}
    assert_sound()


def test_turn_terminate_while_the_turn_is_ending_cuts_off_too(stage: Stage):
    """A turn whose time is up waits for its last answers; terminate must not wait with it."""
    Gateway.objects.update(timeout_seconds=300)
    job = stage.job(accounts=1, items=2)

    async def scene() -> None:
        async with stage.open() as sim:
            sim.faults.install({"kind": "hang", "seconds": 60})
            async with turning(options=replace(QUICK, turn=0.5, hard_turn=0.6)):
                await until(lambda: len(stage.sends()) == 1)
                await asyncio.sleep(1.0)
                await in_thread(
                    terminate_job, job_id=job.pk, actor=None, reason="stop", confirm_name=job.name
                )
            await in_thread(advance_jobs)
            assert await status(job) == "terminated"

    run(scene())
    assert states(job) == {"in_doubt": 1, "pending": 1}


@pytest.mark.parametrize("what", ["account", "gateway"])
def test_turn_account_or_gateway_switched_off_stops_within_a_tick(stage: Stage, what):
    job = stage.job(accounts=3, items=100, per_min=1200)
    model = {"account": Account, "gateway": Gateway}[what]

    async def scene() -> None:
        async with stage.open(), turning():
            await until(lambda: len(stage.sends()) >= 20)
            await in_thread(lambda: model.objects.update(is_active=False))
            mark = len(stage.sends())
            await asyncio.sleep(0.5)
            assert max(stage.since(mark).values(), default=0) <= 1

    run(scene())
    assert Job.objects.get(pk=job.pk).status == "running"
    assert states(job)["in_doubt"] == 0
    assert_sound()


# --- the end of a worker -------------------------------------------------------------------------


def test_turn_asked_to_stop_drains_and_leaves_nothing_open(stage: Stage):
    job = stage.job(accounts=8, items=50, per_min=1200)
    ask = Stop()

    async def scene() -> None:
        async with stage.open(latency_seconds=(0.05, 0.1)), turning(stop=ask) as turn:
            await until(lambda: len(stage.sends()) >= 40)
            ask.asked = True
            asked_at = time.monotonic()
            result = await turn
            assert time.monotonic() - asked_at < 5
            assert result.reason == "stop"

    run(scene())
    sent = len(stage.sends())
    assert states(job) == {"confirmed": sent, "pending": 400 - sent}
    assert not Account.objects.exclude(lane=None).exists()
    assert_sound()


def test_turn_asked_to_stop_cuts_off_what_hangs_within_its_limit(stage: Stage):
    job = stage.job(accounts=3, items=2)
    ask = Stop()

    async def scene() -> None:
        async with stage.open() as sim:
            sim.faults.install({"kind": "hang", "seconds": 60})
            async with turning(stop=ask) as turn:
                await until(lambda: len(stage.sends()) == 3)
                ask.asked = True
                asked_at = time.monotonic()
                await turn
                assert time.monotonic() - asked_at < QUICK.term_drain + 3

    run(scene())
    assert states(job) == {"in_doubt": 3, "pending": 3}
    assert_sound()


def test_turn_claim_under_way_at_the_end_is_sent_and_recorded(stage: Stage):
    """The claim waits for a verb's lock while the stop comes; what it then claims still goes."""
    job = stage.job(accounts=2, items=1)
    ask = Stop()

    async def scene() -> None:
        async with stage.open():
            with plain_connection() as verb:
                verb.execute("select 1 from batches_job for no key update")
                async with turning(stop=ask, options=replace(QUICK, term_drain=5.0)):
                    await until_claim_waits()
                    ask.asked = True
                    await asyncio.sleep(0.3)
                    verb.rollback()

    run(scene())
    assert len(stage.sends()) == 2
    assert states(job) == {"confirmed": 2}
    assert_sound()


def test_turn_robbed_of_its_lease_sends_nothing_more(stage: Stage):
    job = stage.job(accounts=8, items=50, per_min=1200)

    async def scene() -> None:
        async with stage.open():
            async with turning() as turn:
                await until(lambda: len(stage.sends()) >= 40)
                await in_thread(sql, "update batches_lane set ended_at = clock_timestamp()")
                mark = len(stage.sends())
                result = await turn
                assert result.reason == "lost"
                assert max(stage.since(mark).values(), default=0) <= 1
            await in_thread(rescue_lost_calls)
            await turns_until(job, "completed", "verifying")

    run(scene())
    stage.assert_each_once()
    assert len(stage.sends()) == 400
    assert states(job) == {"confirmed": 400}
    assert_sound()


def test_turn_whose_accounts_another_lane_took_sends_nothing_for_them(stage: Stage):
    stage.job(accounts=6, items=100, per_min=1200)

    async def scene() -> None:
        async with stage.open(), turning():
            await until(lambda: len(stage.sends()) >= 30)
            await in_thread(
                sql,
                "with other as (insert into batches_lane (worker, started_at, lease_expires_at,"
                " stop_requested, sent, note) values ('thief', now(), now() + interval '1 hour',"
                " false, 0, '') returning id)"
                " update batches_account set lane_id = (select id from other)",
            )
            mark = len(stage.sends())
            await asyncio.sleep(0.5)
            assert max(stage.since(mark).values(), default=0) <= 1

    run(scene())
    stage.assert_each_once()
    assert_sound()
