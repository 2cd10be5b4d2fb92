"""Turns in trouble with their gateway or their database."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from dataclasses import replace

import psycopg
import pytest

from batches.domain import decisions
from batches.domain.categories import Category
from batches.domain.outcomes import Outcome, Refused
from batches.gateways.base import RequestBuildError
from batches.gateways.wecomapi import WecomApiGateway
from batches.models import Account, Item, Job, Shard
from tests.integration.store.support import assert_sound, run, sql

from .stage import (
    QUICK,
    Stage,
    Stop,
    in_thread,
    play_turn,
    states,
    status,
    turning,
    turns_until,
    until,
    until_status,
)

pytestmark = pytest.mark.django_db(transaction=True)


# --- trouble at the gateway ----------------------------------------------------------------------


def test_turn_account_that_hangs_holds_nobody_else_up(stage: Stage):
    job = stage.job(accounts=4, items=40)
    victim = Account.objects.order_by("pk").first()
    ask = Stop()

    async def scene() -> None:
        async with stage.open() as sim:
            sim.faults.install({"kind": "hang", "seconds": 60, "scope": {"guid": victim.guid}})
            async with turning(stop=ask):
                # all the others' items arrive while the first call of the victim still hangs
                await until(lambda: len(stage.sends()) == 3 * 40 + 1)
                assert stage.since(0)[victim.guid] == 1
                ask.asked = True

    run(scene())
    assert states(job) == {"confirmed": 120, "in_doubt": 1, "pending": 39}


def test_turn_token_that_a_gateway_echoes_is_not_recorded(stage: Stage, monkeypatch):
    token = secrets.token_urlsafe(12)
    stage.gateway.token = token
    stage.gateway.save()
    told = iter([Refused(Category.TARGET_INVALID, "1", f"no {token}")])

    def parse(*_: object) -> list[Outcome]:
        for outcome in told:
            return [outcome]
        raise ValueError(f"cannot read {token}")

    monkeypatch.setattr(WecomApiGateway, "parse", parse)
    job = stage.job(accounts=1, items=2)

    async def scene() -> None:
        async with stage.open():
            ask = Stop()
            async with turning(stop=ask):
                await until(lambda: len(stage.sends()) == 2)
                ask.asked = True

    run(scene())
    assert states(job) == {"failed": 1, "in_doubt": 1}
    said = list(Item.objects.order_by("seq").values_list("message", flat=True))
    assert said == ["no ***", "ValueError: cannot read ***"]


def test_turn_gateway_that_refuses_connections_costs_nothing_and_resumes(stage: Stage):
    job = stage.job(accounts=3, items=3)

    async def scene() -> None:
        async with turning(options=replace(QUICK, turn=20)):
            await until_held()
            used, held, attempts = await in_thread(
                lambda: (
                    Job.objects.get(pk=job.pk).budget_used,
                    set(Account.objects.values_list("hold_reason", flat=True)),
                    set(Item.objects.values_list("attempt", "state")),
                )
            )
            assert used <= 3
            assert held == {"gateway"}
            assert {state for _, state in attempts} <= {"pending", "submitted"}
            assert max(attempt for attempt, _ in attempts) <= 1
            async with stage.open():
                await until_status(job, "completed", within=20)

    run(scene())
    stage.assert_each_once()
    assert states(job) == {"confirmed": 9}
    assert set(Item.objects.values_list("attempt", flat=True)) == {1}
    assert_sound()


async def until_held() -> None:
    end = time.monotonic() + 10
    while await in_thread(lambda: Account.objects.filter(hold_until=None).exists()):
        assert time.monotonic() < end, "nobody was held"
        await asyncio.sleep(0.02)


def test_turn_rate_refusals_slow_the_account_and_every_item_arrives(stage: Stage):
    job = stage.job(accounts=2, items=5)

    async def scene() -> None:
        async with stage.open() as sim:
            sim.faults.install({"kind": "http_429", "retry_after": 0, "count": 4})
            throttles = set()
            async with turning():
                while await status(job) != "completed":
                    throttles |= set(
                        await in_thread(
                            lambda: list(Account.objects.values_list("throttle", flat=True))
                        )
                    )
                    await asyncio.sleep(0.02)
            assert min(throttles) <= 0.5

    run(scene())
    stage.assert_each_once()
    assert states(job) == {"confirmed": 10}
    assert set(Item.objects.values_list("attempt", flat=True)) == {1}
    assert_sound()


def test_turn_final_refusal_fails_the_item_with_its_reason_and_returns_the_send(stage: Stage):
    job = stage.job(accounts=2, items=3)

    async def scene() -> None:
        async with stage.open() as sim:
            sim.faults.install({"kind": "refuse", "code": 40003, "scope": {"target": "t2"}})
            await play_turn()

    run(scene())
    failed = list(Item.objects.filter(job_id=job.pk, state="failed"))
    assert [(i.target, i.code) for i in failed] == [("t2", "40003")] * 2
    assert all(i.category for i in failed)
    job.refresh_from_db()
    assert (job.status, job.budget_used) == ("completed", 4)
    assert_sound()


def test_turn_retryable_refusal_is_tried_up_to_the_limit_then_failed(stage: Stage, monkeypatch):
    monkeypatch.setattr(decisions, "BACKOFF_BASE", 0.02)
    job = stage.job(accounts=1, items=3, max_attempts=3)

    async def scene() -> None:
        async with stage.open() as sim:
            fault = sim.faults.install({"kind": "refuse", "code": -1, "scope": {"target": "t2"}})
            await turns_until(job, "completed")
            assert fault.fired == 3

    run(scene())
    item = Item.objects.get(job_id=job.pk, target="t2")
    assert (item.state, item.attempt, item.category) == ("failed", 3, "retry_system")
    assert states(job) == {"confirmed": 2, "failed": 1}
    assert_sound()


@pytest.mark.parametrize(
    "kind",
    ["reset_after_effect", "http_5xx_after_effect", "garbage_body", "truncated_body", "huge_body"],
)
def test_turn_unclear_answer_puts_the_item_in_doubt_and_is_never_repeated(stage: Stage, kind):
    job = stage.job(accounts=3, items=4)

    async def scene() -> None:
        async with stage.open() as sim:
            sim.faults.install({"kind": kind, "scope": {"target": "t2"}})
            await play_turn()
            await play_turn()

    run(scene())
    stage.assert_each_once()
    assert states(job) == {"confirmed": 9, "in_doubt": 3}
    job.refresh_from_db()
    assert (job.status, job.budget_used) == ("verifying", 12)
    assert_sound()


def test_turn_row_that_cannot_be_built_fails_alone(stage: Stage, monkeypatch):
    job = stage.job(accounts=1, items=3)
    build = WecomApiGateway.build

    def picky(self, config, call):
        if call.targets[0].target == "t2":
            raise RequestBuildError("no such letter")
        return build(self, config, call)

    monkeypatch.setattr(WecomApiGateway, "build", picky)

    async def scene() -> None:
        async with stage.open():
            await play_turn()

    run(scene())
    assert states(job) == {"confirmed": 2, "failed": 1}
    assert Item.objects.get(job_id=job.pk, target="t2").category == "render"
    assert_sound()


# --- trouble at the database ---------------------------------------------------------------------


@pytest.mark.parametrize("roles", [("claim",), ("settle",), ("control",), ("fetch",), ()])
def test_turn_whose_connections_are_killed_again_and_again_loses_and_repeats_nothing(
    stage: Stage, roles
):
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    job = stage.job(accounts=10, items=40, per_min=1500)
    killed = 0

    async def scene() -> None:
        nonlocal killed
        async with stage.open(latency_seconds=(0.0, 0.02)):
            async with turning(options=replace(QUICK, idle=1.0)) as turn:
                while killed < 10 and not turn.done():
                    await asyncio.sleep(rng.uniform(0.02, 0.15))
                    role = rng.choice(roles or ("claim", "settle", "control", "fetch"))
                    killed += await in_thread(_kill, role)
            await turns_until(job, "completed", "verifying")

    run(scene())
    # a killed connection is missed, and made anew, at its next use: a look-ahead needs few
    least = 1 if roles == ("fetch",) else 3
    assert killed >= least, "too few connections died to prove anything"
    stage.assert_each_once()
    assert len(stage.sends()) == 400
    assert states(job) == {"confirmed": 400}, f"seed {seed}"
    assert_sound()


def _kill(role: str) -> int:
    return sum(
        bool(done)
        for (done,) in sql(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name like %s and datname = current_database()",
            f"lane-{role}-%",
        )
    )


def test_turn_whose_every_connection_dies_at_once_goes_on(stage: Stage):
    job = stage.job(accounts=10, items=40, per_min=1800)

    async def scene() -> None:
        async with stage.open(), turning(options=replace(QUICK, idle=1.0)):
            for n in (50, 150, 250):
                await until(lambda n=n: len(stage.sends()) >= n)
                await in_thread(_kill, "%")
        async with stage.open():
            await turns_until(job, "completed", "verifying")

    run(scene())
    stage.assert_each_once()
    assert states(job) == {"confirmed": 400}
    assert_sound()


def test_turn_settle_that_deadlocks_is_recorded_all_the_same(stage: Stage, monkeypatch):
    from batches.engine import settling

    failures = iter([psycopg.errors.DeadlockDetected("deadlock detected")] * 3)
    original = settling.settle

    async def unlucky(conn, batch):
        for failure in failures:
            raise failure
        return await original(conn, batch)

    monkeypatch.setattr(settling, "settle", unlucky)
    job = stage.job(accounts=3, items=5)

    async def scene() -> None:
        async with stage.open():
            await play_turn()

    run(scene())
    assert states(job) == {"confirmed": 15}


def test_turn_answer_that_the_database_refuses_takes_no_neighbour_along(stage: Stage, monkeypatch):
    from batches.engine import settling

    original = settling.settle

    async def refusing(conn, batch):
        doubt = all(d.fate == "doubt" for s in batch for d in s.decisions)
        if not doubt and any(victim in s.item_ids for s in batch):
            raise psycopg.errors.CheckViolation("no")
        return await original(conn, batch)

    monkeypatch.setattr(settling, "settle", refusing)
    job = stage.job(accounts=3, items=5)
    bad = Item.objects.filter(job_id=job.pk, target="t2").order_by("pk").first()
    victim = bad.pk

    async def scene() -> None:
        async with stage.open():
            await play_turn()

    run(scene())
    stage.assert_each_once()
    assert states(job) == {"confirmed": 14, "in_doubt": 1}
    assert_sound()
    assert Shard.objects.get(pk=bad.shard_id).in_doubt == 1
