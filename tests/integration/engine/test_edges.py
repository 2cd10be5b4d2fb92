"""Moments in which a turn could lose, repeat or hurry something: each is brought about."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from batches.engine import claiming, settling
from batches.engine.claiming import Claimer
from batches.engine.picking import Pick
from batches.engine.plan import AccountPlan, PlannedItem
from batches.engine.state import LaneState, TurnOptions
from batches.models import Account, Gateway, Item, Job
from batches.store.claim import Claimed
from batches.store.settle import Settled
from tests.integration.store.support import assert_sound, plain_connection, run, sql

from .stage import QUICK, Stage, Stop, in_thread, play_turn, states, turning, turns_until, until

pytestmark = pytest.mark.django_db(transaction=True)


def test_flight_cut_off_before_its_first_step_is_recorded_as_never_sent():
    """Terminate can cancel a call in the very round of the loop that launched it."""

    async def scene() -> LaneState:
        state = LaneState(lane=1, options=TurnOptions(), should_stop=lambda: False)
        admission: Any = SimpleNamespace(ended=lambda *_: None)
        claimer = Claimer(state, SimpleNamespace(), admission)  # type: ignore[arg-type]
        account = AccountPlan(1, "guid", 1, 1)
        job: Any = SimpleNamespace(
            job_id=1, max_attempts=3, waits_for_confirmation=False,
            breaker=SimpleNamespace(add=lambda **_: False),
        )  # fmt: skip
        shard: Any = SimpleNamespace(job_id=1, probe=False)
        item = PlannedItem(5, 1, "t1", [])
        gateway: Any = SimpleNamespace(gateway_id=1)
        pick = Pick(account, shard, job, gateway, 1, [item])
        claimer._launch(pick, [(item, Claimed(5, 77, 1, 1))], time.monotonic(), "", None)
        task, _ = state.flights[77]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0)
        assert account.inflight == 0
        return state

    state = run(scene())
    assert state.flights == {}
    (settled,) = state.answers
    assert (settled.call_id, settled.item_ids) == (77, (5,))
    decision = settled.decisions[0]
    assert (decision.fate, decision.outcome, decision.refund) == ("retry", "not_sent", True)


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Settled]:
    """Everything that a turn settles, as it is handed to the store."""
    seen: list[Settled] = []
    original = settling.settle

    async def listening(conn, batch):
        seen.extend(batch)
        return await original(conn, batch)

    monkeypatch.setattr(settling, "settle", listening)
    return seen


def test_send_whose_claim_took_long_pushes_the_gate_by_as_much(stage: Stage, monkeypatch):
    """The gate's schedule begins inside the claim: what the claim itself takes is lateness too."""
    seen = recorded(monkeypatch)
    stage.job(accounts=1, items=30, per_min=600)

    async def scene() -> None:
        with plain_connection() as holder:
            async with stage.open(), turning():
                await until(lambda: len(stage.sends()) >= 2)
                await asyncio.to_thread(holder.execute, "select 1 from batches_account for update")
                await until_claiming()
                await asyncio.sleep(1.0)
                holder.rollback()

    run(scene())
    assert len(seen) == 30
    assert sum(s.late > 0.6 for s in seen) == 1


async def until_claiming() -> None:
    def waits() -> bool:
        return bool(
            sql(
                "select 1 from pg_stat_activity where application_name like 'lane-claim%%'"
                " and wait_event_type = 'Lock' and datname = current_database()"
            )
        )

    end = time.monotonic() + 5
    while not await in_thread(waits):
        assert time.monotonic() < end, "no claim waits"
        await asyncio.sleep(0.02)


def test_lane_frozen_beyond_its_lease_wakes_up_harmless(stage: Stage):
    """A process that stood still while others took its work over: it must not send on."""
    job = stage.job(accounts=6, items=25, per_min=900)
    slow = replace(QUICK, lease=1.5)
    frozen: dict[str, Any] = {}
    is_up = threading.Event()

    def zombie() -> None:
        from django.db import connection

        async def live() -> None:
            frozen["loop"] = asyncio.get_running_loop()
            is_up.set()
            frozen["result"] = await play_turn(options=slow)

        try:
            asyncio.run(live())
        finally:
            connection.close()

    async def scene() -> None:
        async with stage.open(latency_seconds=(0.02, 0.05)):
            thread = threading.Thread(target=zombie, daemon=True)
            thread.start()
            await asyncio.to_thread(is_up.wait, 10)
            await until(lambda: len(stage.sends()) >= 30)
            frozen["loop"].call_soon_threadsafe(time.sleep, 4.0)
            await until_taken_over()
            await turns_until(job, "completed", "verifying")
            await asyncio.to_thread(thread.join, 20)
            assert not thread.is_alive()
            await turns_until(job, "completed", "verifying")

    run(scene())
    assert frozen["result"].reason == "lost"
    stage.assert_each_once()
    assert len(stage.sends()) == 150
    assert states(job)["confirmed"] + states(job)["in_doubt"] == 150
    assert states(job)["in_doubt"] <= 6
    assert_sound()


async def until_taken_over() -> None:
    """Until the lease of the only lane has run out."""

    def dead() -> bool:
        return not sql("select 1 from batches_lane where lease_expires_at > clock_timestamp()")

    end = time.monotonic() + 10
    while not await in_thread(dead):
        assert time.monotonic() < end, "the lease never ran out"
        await asyncio.sleep(0.05)


def test_claim_whose_answer_was_lost_is_taken_back_as_never_sent(stage: Stage, monkeypatch):
    """The connection breaks after the commit: the claim stands, and nobody heard of it."""
    seen = recorded(monkeypatch)
    original = claiming.store.claim
    broken = []

    async def deaf(conn, **more):
        result = await original(conn, **more)
        if len(broken) < 3 and result.claimed:
            broken.append(result)
            await conn.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return result

    monkeypatch.setattr(claiming.store, "claim", deaf)
    job = stage.job(accounts=4, items=5)

    async def scene() -> None:
        async with stage.open():
            await turns_until(job, "completed", "verifying")

    run(scene())
    assert len(broken) == 3
    lost = {c.call_id for result in broken for c in result.claimed}
    assert {s.call_id for s in seen if s.decisions[0].outcome == "not_sent"} == lost
    stage.assert_each_once()
    assert states(job) == {"confirmed": 20}
    assert set(Item.objects.values_list("attempt", flat=True)) == {1}
    assert_sound()


def test_limits_that_cannot_be_read_are_asked_for_again(stage: Stage, monkeypatch):
    original = claiming.store.job_room
    failures = []

    async def failing(conn, jobs):
        if len(failures) < 2:
            failures.append(jobs)
            await conn.close()
            raise psycopg.OperationalError("gone")
        return await original(conn, jobs)

    monkeypatch.setattr(claiming.store, "job_room", failing)
    job = stage.job(accounts=3, items=5, budget_limit=4)

    async def scene() -> None:
        async with stage.open():
            result = await play_turn()
            assert result.reason == "idle"

    run(scene())
    assert len(failures) == 2
    assert len(stage.sends()) == 4
    assert Job.objects.get(pk=job.pk).status == "paused"


def test_control_connection_that_breaks_at_the_end_still_closes_the_turn(stage: Stage):
    """Else the accounts would wait for the lease to run out."""
    stage.job(accounts=2, items=3)
    ask = Stop()

    async def scene() -> None:
        async with stage.open() as sim:
            sim.faults.install({"kind": "latency", "seconds": 0.8})
            async with turning(stop=ask):
                await until(lambda: len(stage.sends()) == 2)
                ask.asked = True
                await asyncio.sleep(0.15)
                await in_thread(
                    sql,
                    "select pg_terminate_backend(pid) from pg_stat_activity"
                    " where application_name like 'lane-control%%'"
                    " and datname = current_database()",
                )

    run(scene())
    assert sql("select count(*) from batches_lane where ended_at is null") == [(0,)]
    assert not Account.objects.exclude(lane=None).exists()
    assert_sound()


def test_lane_never_has_more_calls_of_an_account_than_allowed(stage: Stage):
    """What a stop leaves to finish is bounded by this."""
    most: dict[str, int] = {}
    flying: dict[str, int] = {}
    job = stage.job(accounts=4, items=30)
    Account.objects.update(max_inflight=3)

    async def scene() -> None:
        async with stage.open(latency_seconds=(0.01, 0.06)) as sim:
            original = sim.handle

            async def counting(request):
                guid = (await request.json())["guid"]
                flying[guid] = flying.get(guid, 0) + 1
                most[guid] = max(most.get(guid, 0), flying[guid])
                try:
                    return await original(request)
                finally:
                    flying[guid] -= 1

            sim.handle = counting  # type: ignore[method-assign]
            await turns_until(job, "completed")

    run(scene())
    assert max(most.values()) == 3
    stage.assert_each_once()


@pytest.mark.parametrize("per_min", [60, 600])
def test_rate_raised_and_lowered_while_running_takes_effect(stage: Stage, per_min):
    """Hot changes count within two seconds, without a restart."""
    stage.job(accounts=3, items=400, per_min=per_min)
    ask = Stop()

    async def scene() -> None:
        async with stage.open(), turning(stop=ask):
            await until(lambda: len(stage.sends()) >= 3)
            await in_thread(lambda: Account.objects.update(total_rate_per_min=6000))
            mark = len(stage.sends())
            await until(lambda: len(stage.sends()) >= mark + 60, within=4)
            await in_thread(lambda: Account.objects.update(total_rate_per_min=1))
            await asyncio.sleep(0.3)
            mark = len(stage.sends())
            await asyncio.sleep(1.0)
            assert max(stage.since(mark).values(), default=0) <= 1
            ask.asked = True

    run(scene())
    stage.assert_each_once()


def test_gateways_that_hang_do_not_slow_a_gateway_that_answers(stage: Stage):
    """Two gateways side by side: all calls of one hang, the other one's items all arrive."""
    other = Stage()
    dead = other.job(accounts=20, items=2)
    alive = stage.job(accounts=5, items=40)
    Gateway.objects.filter(pk=other.gateway.pk).update(timeout_seconds=60)
    ask = Stop()

    async def scene() -> None:
        async with other.open() as hanging, stage.open():
            hanging.faults.install({"kind": "hang", "seconds": 60})
            async with turning(stop=ask):
                await until(lambda: len(stage.sends()) == 200 and len(other.sends()) == 20)
                ask.asked = True

    run(scene())
    assert states(alive) == {"confirmed": 200}
    assert states(dead) == {"in_doubt": 20, "pending": 20}
