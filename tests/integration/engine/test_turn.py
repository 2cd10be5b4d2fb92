"""Turns of a lane against a gateway: to the end, stopped, cut off, robbed, and side by side."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from dataclasses import replace

import psycopg
import pytest

from batches.domain import decisions
from batches.gateways.base import RequestBuildError
from batches.gateways.wecomapi import WecomApiGateway
from batches.models import Account, Call, Gateway, Item, Job, Lane, Shard
from batches.services.jobs import cancel_job, pause_job, resume_job, terminate_job
from batches.store.advance import advance_jobs, rescue_lost_calls
from tests.factories import ShardSpec, make_job
from tests.integration.store.support import assert_sound, plain_connection, run, sql

from .stage import (
    NO_BREAKER,
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


async def until_status(job: Job, *wanted: str, within: float = 15.0) -> None:
    end = time.monotonic() + within
    while (now := await status(job)) not in wanted:
        assert time.monotonic() < end, f"still {now}"
        await asyncio.sleep(0.05)


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


async def until_claim_waits() -> None:
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
            second = await play_turn(options=replace(QUICK, idle=5))
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
    assert killed >= 3, "too few connections died to prove anything"
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
