"""The breaker of a whole job: what it remembers, what it stops, and how a stopped job goes on."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest
from django.db.models.functions import Now

from batches.models import Call, Event, Job, JobMinute, Shard
from batches.services.jobs import resume_job, resume_shard
from tests.factories import items_of
from tests.integration.store.support import assert_sound, run

from .stage import (
    QUICK,
    Stage,
    in_thread,
    play_turn,
    states,
    status,
    turning,
    turns_until,
    until_status,
)

pytestmark = pytest.mark.django_db(transaction=True)

#: a refusal for good that says nothing of rates, logins or permissions
REFUSED: dict[str, Any] = {"kind": "refuse", "code": 40003}
RATIO: dict[str, Any] = {
    "breaker_streak": 1000, "breaker_ratio": 0.5, "breaker_window": 40, "breaker_min_sample": 20,
    "breaker_shard_share": 0.5,
}  # fmt: skip


@pytest.fixture
def stage() -> Stage:
    return Stage()


def _shards(job: Job) -> set[tuple[str, str]]:
    return set(Shard.objects.filter(job=job).values_list("status", "reason"))


def _half_open(job: Job) -> int:
    return Shard.objects.filter(job=job, probe_from__isnull=False).count()


def _told(job: Job) -> list[dict[str, Any]]:
    return list(Event.objects.filter(job=job, kind="job.tripped").values_list("data", flat=True))


def test_job_whose_calls_mostly_fail_is_paused_within_its_sample(stage: Stage):
    async def scene() -> None:
        job = await in_thread(lambda: stage.job(accounts=4, items=100, per_min=6000, **RATIO))
        async with stage.open() as sim:
            fault = sim.faults.install(REFUSED)
            assert await turns_until(job, "paused") == "paused"
            # those that had left before the sample was full
            assert 20 <= fault.fired <= 20 + 4
        await in_thread(job.refresh_from_db)
        assert job.pause_reason == "breaker"
        (told,) = await in_thread(lambda: _told(job))
        assert (told["bad"], told["sample"], told["code"]) == (20, 20, "40003")
        await in_thread(assert_sound, job)

    run(scene())


def test_failures_of_several_short_turns_add_up(stage: Stage):
    async def scene() -> None:
        limits = RATIO | {"breaker_min_sample": 30}
        job = await in_thread(lambda: stage.job(accounts=1, items=200, per_min=600, **limits))
        short = replace(QUICK, turn=1.2)
        async with stage.open() as sim:
            fault = sim.faults.install(REFUSED)
            turns = 0
            while await status(job) == "running":
                before = fault.fired
                await play_turn(options=short)
                assert fault.fired - before < 30, "one turn alone must not fill the sample"
                turns += 1
            assert turns >= 2
            assert 30 <= fault.fired <= 60
        await in_thread(job.refresh_from_db)
        assert (job.status, job.pause_reason) == ("paused", "breaker")

    run(scene())


def test_failures_of_two_lanes_add_up(stage: Stage):
    async def scene() -> None:
        limits = RATIO | {"breaker_min_sample": 40, "breaker_window": 60}
        job = await in_thread(lambda: stage.job(accounts=2, items=30, per_min=600, **limits))
        async with stage.open() as sim:
            fault = sim.faults.install(REFUSED)
            async with turning(), turning():
                await until_status(job, "paused")
            assert 40 <= fault.fired < 60
            lanes = await in_thread(lambda: set(Call.objects.values_list("lane_id", flat=True)))
            assert len(lanes) == 2
        await in_thread(job.refresh_from_db)
        assert job.pause_reason == "breaker"

    run(scene())


def test_resumed_job_tries_one_item_of_each_account_and_stops_again(stage: Stage):
    async def scene() -> None:
        accounts = await in_thread(
            lambda: stage.accounts(6, total_rate_per_min=60_000, max_inflight=5)
        )
        job = await in_thread(lambda: stage.job(accounts=accounts, items=60, **RATIO))
        async with stage.open(latency_seconds=(0.01, 0.03)) as sim:
            fault = sim.faults.install(REFUSED)
            await turns_until(job, "paused")
            for _ in range(2):
                before = fault.fired
                await in_thread(lambda: resume_job(job_id=job.pk, actor=None))
                assert await turns_until(job, "paused") == "paused"
                # a share of stopped shards may stop the job before the last account has tried
                assert 3 <= fault.fired - before <= 6
                await in_thread(job.refresh_from_db)
                assert job.pause_reason == "breaker"
        await in_thread(assert_sound, job)

    run(scene())


def test_resumed_within_a_turn_tries_one_item_of_each_account(stage: Stage):
    """The lane still has full groups in mind, and does not know yet that it may send one."""

    async def scene() -> None:
        accounts = await in_thread(
            lambda: stage.accounts(3, total_rate_per_min=60_000, max_inflight=5)
        )
        job = await in_thread(lambda: stage.job(accounts=accounts, items=200, **RATIO))
        async with stage.open(latency_seconds=(0.01, 0.03)) as sim:
            fault = sim.faults.install(REFUSED)
            async with turning(options=replace(QUICK, idle=3.0)):
                await until_status(job, "paused")
                before = fault.fired
                await in_thread(lambda: resume_job(job_id=job.pk, actor=None))
                await until_status(job, "paused", within=20)
                assert 2 <= fault.fired - before <= 3
        await in_thread(assert_sound, job)

    run(scene())


def test_resumed_job_whose_cause_is_gone_goes_on_at_full_pace(stage: Stage):
    async def scene() -> None:
        job = await in_thread(lambda: stage.job(accounts=4, items=60, per_min=60_000, **RATIO))
        async with stage.open() as sim:
            fault = sim.faults.install(REFUSED)
            await turns_until(job, "paused")
            sim.faults.remove(fault.id)
            await in_thread(lambda: resume_job(job_id=job.pk, actor=None))
            assert await in_thread(lambda: _half_open(job)) == 4
            assert await turns_until(job, "completed") == "completed"
            assert len(sim.record.effects) == 240 - fault.fired
        assert await in_thread(lambda: _half_open(job)) == 0
        await in_thread(assert_sound, job)

    run(scene())


def test_resumed_shard_costs_one_item_if_nothing_has_changed(stage: Stage):
    async def scene() -> None:
        account = (await in_thread(lambda: stage.accounts(2, max_inflight=5)))[0]
        job = await in_thread(
            lambda: stage.job(accounts=[account], items=100, **(RATIO | {"breaker_streak": 10}))
        )
        async with stage.open(latency_seconds=(0.01, 0.03)) as sim:
            fault = sim.faults.install(REFUSED)
            await turns_until(job, "paused")
            before = fault.fired
            await in_thread(lambda: resume_shard(job_id=job.pk, ordinal=1, actor=None))
            await in_thread(lambda: resume_job(job_id=job.pk, actor=None))
            await turns_until(job, "paused")
            assert fault.fired - before == 1
            assert await in_thread(lambda: _shards(job)) == {("paused", "breaker")}

    run(scene())


def test_missing_permission_stops_the_whole_job(stage: Stage):
    async def scene() -> None:
        job = await in_thread(lambda: stage.job(accounts=3, items=50, per_min=600, **RATIO))
        async with stage.open() as sim:
            fault = sim.faults.install({"kind": "refuse", "code": 48002})
            await turns_until(job, "paused")
            await in_thread(job.refresh_from_db)
            assert job.pause_reason == "permission"
            assert fault.fired <= 2 * 3
            before = fault.fired
            await in_thread(lambda: resume_job(job_id=job.pk, actor=None))
            await turns_until(job, "paused")
            assert 1 <= fault.fired - before <= 3

    run(scene())


def test_outcomes_before_a_resume_are_forgiven(stage: Stage):
    async def scene() -> None:
        job = await in_thread(lambda: stage.job(accounts=2, items=30, per_min=6000, **RATIO))
        await in_thread(
            lambda: JobMinute.objects.create(
                job=job, minute="2026-01-01T00:00:00Z", judged=40, bad=40
            )
        )
        async with stage.open():
            assert await turns_until(job, "paused") == "paused"
            await in_thread(lambda: resume_job(job_id=job.pk, actor=None))
            assert await turns_until(job, "completed", "paused") == "completed"
        stage.assert_each_once()

    run(scene())


def test_claim_of_a_half_open_shard_takes_one_item_and_none_beside_it(stage: Stage):
    async def scene() -> None:
        job = await in_thread(lambda: stage.job(accounts=1, items=30, per_min=60_000, **RATIO))
        await in_thread(lambda: Shard.objects.filter(job=job).update(probe_from=Now()))
        async with stage.open(latency_seconds=(0.3, 0.3)) as sim:
            fault = sim.faults.install(REFUSED)
            async with turning():
                await until_status(job, "paused")
        assert fault.fired == 1
        sizes = await in_thread(lambda: [len(i) for (i,) in Call.objects.values_list("item_ids")])
        assert sizes == [1]

    run(scene())


def test_answers_of_calls_from_before_a_resume_do_not_decide_its_trial(stage: Stage):
    """Five calls hang when the shard trips; the cause is mended, the shard resumed meanwhile."""

    async def scene() -> None:
        (account,) = await in_thread(
            lambda: stage.accounts(1, total_rate_per_min=60_000, max_inflight=5)
        )
        job = await in_thread(
            lambda: stage.job(accounts=[account], items=60, **(RATIO | {"breaker_streak": 3}))
        )
        first = await in_thread(lambda: [i.target for i in items_of(job)][:4])
        async with stage.open() as sim:
            for target in first:
                scope = {"target": target}
                sim.faults.install({"kind": "latency", "seconds": 2.0, "scope": scope})
                sim.faults.install(REFUSED | {"scope": scope})
            cause = sim.faults.install(REFUSED)
            async with turning():
                await _until_shard(job, "paused")
                sim.faults.remove(cause.id)
                assert (await in_thread(lambda: states(job)))["submitted"] == 4
                await in_thread(lambda: resume_job(job_id=job.pk, actor=None))
                await until_status(job, "completed", "paused")
            assert await status(job) == "completed"
        await in_thread(assert_sound, job)

    run(scene())


async def _until_shard(job: Job, wanted: str) -> None:
    end = time.monotonic() + 15
    while (now := (await in_thread(lambda: Shard.objects.get(job=job))).status) != wanted:
        assert time.monotonic() < end, f"still {now}"
        await asyncio.sleep(0.02)
