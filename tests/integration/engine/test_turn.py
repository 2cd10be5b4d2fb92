"""Turns of a lane against a gateway: to the end, within limits, and side by side."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from batches.models import Account, Call, Item, Job, Lane
from batches.services.jobs import resume_job
from tests.factories import ShardSpec, make_job
from tests.integration.store.support import assert_sound, run, sql

from .stage import (
    NO_BREAKER,
    QUICK,
    Stage,
    Stop,
    in_thread,
    play_turn,
    states,
    turning,
    turns_until,
    until,
)

pytestmark = pytest.mark.django_db(transaction=True)


# --- to the end ----------------------------------------------------------------------------------


def test_turn_sends_every_item_once_and_completes_the_job(stage: Stage):
    job = stage.job(accounts=5, items=20)

    async def scene() -> None:
        async with stage.open():
            result = await play_turn()
            assert (result.reason, result.sent) == ("idle", 100)

    run(scene())
    job.refresh_from_db()
    assert (job.status, job.budget_used) == ("completed", 100)
    assert states(job) == {"confirmed": 100}
    stage.assert_each_once()
    assert len(stage.sends()) == 100
    assert not Account.objects.exclude(lane=None).exists()
    assert Lane.objects.exclude(ended_at=None).count() == 1
    assert_sound()


def test_turn_sends_the_rows_of_the_file_in_order_with_its_content(stage: Stage):
    stage.job(accounts=1, items=5)

    async def scene() -> None:
        async with stage.open():
            await play_turn()

    run(scene())
    assert [target for _, target in stage.sends()] == [f"t{n}" for n in range(1, 6)]
    assert stage.sim is not None
    assert stage.sim.record.effects[2].content == "你好 客户 3"


def test_turn_with_a_policy_that_waits_leaves_items_accepted_with_their_id(stage: Stage):
    job = stage.job(accounts=2, items=3, confirm_policy="manual")

    async def scene() -> None:
        async with stage.open():
            await play_turn()

    run(scene())
    job.refresh_from_db()
    assert job.status == "verifying"
    items = Item.objects.filter(job_id=job.pk)
    assert {(i.state, i.accepted_at is not None, bool(i.msg_id)) for i in items} == {
        ("submitted", True, True)
    }
    assert_sound()


def test_turn_with_nothing_to_do_ends_idle_soon(stage: Stage):
    result = run(play_turn())
    assert (result.reason, result.sent) == ("idle", 0)


def test_turn_ends_after_its_time_and_the_next_one_goes_on(stage: Stage):
    job = stage.job(accounts=4, items=30, per_min=600)

    async def scene() -> None:
        async with stage.open():
            result = await play_turn(options=replace(QUICK, turn=0.6))
            assert result.reason == "time"
            assert 0 < len(stage.sends()) < 120
            assert await in_thread(states, job) == {
                "confirmed": len(stage.sends()),
                "pending": 120 - len(stage.sends()),
            }, "nothing in doubt, nothing in flight"
            assert await turns_until(job, "completed") == "completed"

    run(scene())
    stage.assert_each_once()
    assert_sound()


def test_turn_takes_up_new_accounts_while_it_still_holds_finished_ones(stage: Stage):
    """A job that drags on with one account must not keep the accounts of others waiting."""
    slow, *quick = stage.accounts(6)
    Account.objects.filter(pk=slow.pk).update(total_rate_per_min=60)
    specs = [ShardSpec(pending=2, account=a) for a in quick]
    make_job(shards=[*specs, ShardSpec(pending=600, account=slow)], **NO_BREAKER)
    late = stage.job(accounts=5, items=2)
    Job.objects.filter(pk=late.pk).update(status="awaiting")
    ask = Stop()

    async def scene() -> None:
        async with stage.open(), turning(stop=ask):
            await until(lambda: len(stage.sends()) >= 11)
            await in_thread(lambda: Job.objects.filter(pk=late.pk).update(status="running"))
            mark = len(stage.sends())
            await until(lambda: sum(n > 1 for n in stage.since(mark).values()) >= 5, within=5)
            ask.asked = True

    run(scene())
    stage.assert_each_once()


# --- limits --------------------------------------------------------------------------------------


def test_turn_budget_stops_exactly_at_its_limit_and_goes_on_after_a_raise(stage: Stage):
    job = stage.job(accounts=6, items=10, budget_limit=17)

    async def scene() -> None:
        async with stage.open():
            await turns_until(job, "paused")
            assert len(stage.sends()) == 17
            await in_thread(
                lambda: Job.objects.filter(pk=job.pk).update(
                    budget_limit=60, status="running", pause_reason=""
                )
            )
            await turns_until(job, "completed")

    run(scene())
    stage.assert_each_once()
    assert len(stage.sends()) == 60
    assert_sound()


def test_turn_stages_stop_at_each_checkpoint(stage: Stage):
    job = stage.job(accounts=6, items=10, stages=[5, 20])
    seen = []

    async def scene() -> None:
        async with stage.open():
            for _ in range(2):
                await turns_until(job, "paused")
                seen.append(len(stage.sends()))
                await in_thread(resume_job, job_id=job.pk, actor=None)
            await turns_until(job, "completed")

    run(scene())
    assert seen == [5, 20]
    stage.assert_each_once()
    assert len(stage.sends()) == 60


def test_turn_refusals_under_a_budget_are_made_up_for_by_other_items(stage: Stage):
    """Returned sends are spent again: the budget buys that many effects, refusals are free."""
    job = stage.job(accounts=3, items=10, budget_limit=12)

    async def scene() -> None:
        async with stage.open() as sim:
            sim.faults.install({"kind": "refuse", "code": 40003, "scope": {"target": "t1"}})
            await turns_until(job, "paused")

    run(scene())
    assert len(stage.sends()) == 12
    assert states(job) == {"confirmed": 12, "failed": 3, "pending": 15}
    assert Job.objects.get(pk=job.pk).pause_reason == "budget"


def test_turn_job_of_higher_priority_goes_first_on_a_shared_account(stage: Stage):
    accounts = stage.accounts(1, total_rate_per_min=1200)
    low = stage.job(accounts=accounts, items=10, priority=0)
    high = stage.job(accounts=accounts, items=10, priority=5)
    Item.objects.filter(job_id=high.pk).update(target=sql_concat("h"))

    async def scene() -> None:
        async with stage.open():
            await turns_until(low, "completed")

    run(scene())
    order = [target for _, target in stage.sends()]
    assert order[-10:] == [f"t{n}" for n in range(1, 11)]
    assert Job.objects.get(pk=high.pk).status == "completed"


def sql_concat(prefix: str):
    from django.db.models import F, Value
    from django.db.models.functions import Concat

    return Concat(Value(prefix), F("target"))


# --- side by side --------------------------------------------------------------------------------


def test_turns_two_at_once_share_the_accounts_and_send_each_item_once(stage: Stage):
    job = stage.job(accounts=12, items=30, per_min=3000)

    async def scene() -> None:
        async with stage.open():
            patient = replace(QUICK, idle=3)
            first, second = await asyncio.gather(
                play_turn(options=patient), play_turn(options=patient)
            )
            assert first.sent + second.sent == 360
            assert min(first.sent, second.sent) > 0

    run(scene())
    stage.assert_each_once()
    assert states(job) == {"confirmed": 360}
    owners = Call.objects.values_list("account_id", "lane_id").distinct()
    assert len({lane for _, lane in owners}) == 2
    assert_sound()


def test_turns_one_joins_late_and_the_first_lets_go_of_its_surplus(stage: Stage):
    job = stage.job(accounts=40, items=40, per_min=1200)

    async def scene() -> None:
        async with stage.open(), turning():
            await until(lambda: len(stage.sends()) >= 100)
            second = await play_turn(options=replace(QUICK, idle=2.5))
            assert second.sent > 0

    run(scene())
    stage.assert_each_once()
    assert states(job) == {"confirmed": 1600}
    assert_sound()


def test_turn_at_once_after_one_that_vanished_waits_for_its_lease_then_goes_on(stage: Stage):
    """A process that is gone leaves calls in flight: in doubt once, never sent again."""
    job = stage.job(accounts=5, items=10)

    async def scene() -> None:
        async with stage.open() as sim:
            sim.faults.install({"kind": "hang", "seconds": 60, "count": 5})
            vanishing = asyncio.create_task(play_turn(options=replace(QUICK, lease=1.0)))
            await until(lambda: len(stage.sends()) == 5)
            # as a kill would leave it: no drain, no release, rows as they are
            frozen = await in_thread(lambda: list(Account.objects.values_list("pk", "lane_id")))
            vanishing.cancel()
            await asyncio.gather(vanishing, return_exceptions=True)
            await in_thread(_as_it_was, frozen)
            await turns_until(job, "verifying", within=20)

    run(scene())
    stage.assert_each_once()
    assert states(job) == {"confirmed": 45, "in_doubt": 5}
    assert_sound()


def _as_it_was(owners: list[tuple[int, int]]) -> None:
    """Undo what the cancelled turn still wrote on its way out."""
    for account, lane in owners:
        Account.objects.filter(pk=account).update(lane_id=lane)
    sql("update batches_lane set ended_at = null")
