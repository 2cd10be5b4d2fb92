"""Budgets, stages and gates at the claim: never over, with any number of claimants."""

from __future__ import annotations

import asyncio

import pytest

from batches.models import Account, Item, Job
from batches.store import claim as claim_store
from tests.factories import ShardSpec, items_of, make_account, make_job, make_lane

from .support import (
    answer,
    assert_sound,
    claim,
    claim_async,
    connected,
    open_gates,
    own,
    owned_job,
    run,
    scope,
    settle_all,
    sql,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def lane():
    return make_lane()


def claimed_ids(result: claim_store.ClaimResult) -> list[int]:
    return sorted(c.item_id for c in result.claimed)


def ids(job: Job, state: str = "pending") -> list[int]:
    return [item.pk for item in items_of(job, state)]


# --- never over ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["budget", "stage"])
def test_claim_by_many_at_once_never_exceeds_the_limit_and_reaches_it(kind):
    """Eight lanes with an account each, every claim racing the others for the last sends."""
    limit = 25
    lanes = [make_lane() for _ in range(8)]
    accounts = [make_account() for _ in lanes]
    columns = {"budget_limit": limit} if kind == "budget" else {"stages": [limit, 1000]}
    job = make_job(shards=[ShardSpec(pending=10, account=a) for a in accounts], **columns)
    own(lanes[0], job)
    for lane, account in zip(lanes, accounts, strict=True):
        Account.objects.filter(pk=account.pk).update(lane=lane)
    plan = []
    for lane, account in zip(lanes, accounts, strict=True):
        mine = list(Item.objects.filter(shard__account=account).values_list("pk", flat=True))
        plan.append((lane.pk, scope(mine), mine))

    async def drain(conn, lane_id, of, wanted):
        taken = 0
        for item in wanted:
            for _ in range(20):  # the gate of 600 000 a minute opens after 0.1 ms
                got = await claim_async(conn=conn, lane=lane_id, items=[item], of=of)
                taken += len(got.claimed)
                if got.claimed:
                    break
        return taken

    async def go():
        async with connected(8) as conns:
            return await asyncio.gather(
                *(drain(c, *one) for c, one in zip(conns, plan, strict=True))
            )

    assert sum(run(go())) == limit
    job.refresh_from_db()
    assert job.budget_used == limit
    assert Item.objects.filter(state="submitted").count() == limit
    assert_sound()


def test_claim_group_larger_than_the_budget_takes_the_first_ones(lane):
    job = owned_job(lane, *[ShardSpec(pending=1) for _ in range(6)], budget_limit=4)
    wanted = ids(job)
    assert claimed_ids(claim(lane=lane.pk, items=wanted)) == wanted[:4]
    open_gates()
    assert claim(lane=lane.pk, items=wanted[4:]).claimed == []


def test_claim_after_refusals_returned_their_sends_may_go_on_to_the_limit(lane):
    job = owned_job(lane, *[ShardSpec(pending=1) for _ in range(4)], budget_limit=2)
    items = items_of(job)
    claim(lane=lane.pk, items=[i.pk for i in items])
    taken = items_of(job, "submitted")
    settle_all(answer(taken[0], "failed"), answer(taken[1], "confirmed"))
    assert Job.objects.get(pk=job.pk).budget_used == 1
    open_gates()
    assert len(claim(lane=lane.pk, items=ids(job)).claimed) == 1
    open_gates()
    assert claim(lane=lane.pk, items=ids(job)).claimed == []
    assert_sound()


def test_claim_smaller_limit_of_budget_and_stage_counts(lane):
    job = owned_job(lane, *[ShardSpec(pending=1) for _ in range(5)], budget_limit=4, stages=[2, 5])
    assert len(claim(lane=lane.pk, items=ids(job)).claimed) == 2
    Job.objects.update(stages_passed=1)
    open_gates()
    assert len(claim(lane=lane.pk, items=ids(job)).claimed) == 2
    open_gates()
    assert claim(lane=lane.pk, items=ids(job)).claimed == []
    Job.objects.update(stages_passed=2, budget_limit=None)
    open_gates()
    assert len(claim(lane=lane.pk, items=ids(job)).claimed) == 1


def test_claim_two_jobs_of_which_one_is_out_of_budget_takes_the_other(lane):
    poor = owned_job(lane, ShardSpec(pending=2, confirmed=1), budget_limit=1)
    rich = owned_job(lane, ShardSpec(pending=2))
    result = claim(lane=lane.pk, items=[ids(poor)[0], ids(rich)[0]])
    assert claimed_ids(result) == [ids(rich, "submitted")[0]]
    assert len(result.gates) == 2


# --- gates ---------------------------------------------------------------------------------------


def slow(job: Job, per_min: int = 60, reserve: int = 0) -> None:
    Account.objects.update(total_rate_per_min=per_min, online_reserve_per_min=reserve)


def test_claim_account_after_a_send_waits_for_its_gate(lane):
    job = owned_job(lane, ShardSpec(pending=3))
    slow(job)
    wanted = ids(job)
    first = claim(lane=lane.pk, items=wanted[:1])
    (gate,) = first.gates.values()
    assert 0.3 < gate.due_in <= 1.1
    again = claim(lane=lane.pk, items=wanted[1:])
    assert again.claimed == []
    assert 0 < next(iter(again.gates.values())).due_in <= gate.due_in


def test_claim_several_items_of_one_account_takes_one(lane):
    job = owned_job(lane, ShardSpec(pending=5))
    slow(job)
    assert len(claim(lane=lane.pk, items=ids(job)).claimed) == 1


def test_claim_two_jobs_of_one_account_share_its_gate(lane):
    account = make_account()
    jobs = [make_job(shards=[ShardSpec(pending=2, account=account)]) for _ in range(2)]
    for job in jobs:
        own(lane, job, per_min=60)
    assert len(claim(lane=lane.pk, items=ids(jobs[0])).claimed) == 1
    assert claim(lane=lane.pk, items=ids(jobs[1])).claimed == []


def test_claim_after_a_takeover_still_waits_for_the_gate(lane):
    """Never over, also across a takeover: the gate lives with the account."""
    job = owned_job(lane, ShardSpec(pending=3))
    slow(job)
    claim(lane=lane.pk, items=ids(job)[:1])
    heir = make_lane()
    sql("update batches_lane set ended_at = clock_timestamp() where id = %s", lane.pk)
    sql("update batches_account set lane_id = %s", heir.pk)
    result = claim(lane=heir.pk, items=ids(job))
    assert result.claimed == []
    assert next(iter(result.gates.values())).due_in > 0


def test_claim_reserve_is_never_borrowed_and_throttle_slows(lane):
    job = owned_job(lane, ShardSpec(pending=1), ShardSpec(pending=1), ShardSpec(pending=1))
    whole, reserved, throttled = [s.account_id for s in job.shards.order_by("ordinal")]
    slow(job)
    Account.objects.filter(pk=reserved).update(online_reserve_per_min=30)
    sql("update batches_account set throttle = 0.5 where id = %s", throttled)
    gates = claim(lane=lane.pk, items=ids(job)).gates
    for account in (reserved, throttled):
        step, slack = gates[account].due_in, gates[account].slack
        assert step + slack > 1.9 * (gates[whole].due_in + gates[whole].slack)


def test_claim_long_idle_account_gets_no_burst(lane):
    job = owned_job(lane, ShardSpec(pending=5))
    slow(job)
    sql("update batches_account set gate_at = clock_timestamp() - interval '1 hour'")
    assert len(claim(lane=lane.pk, items=ids(job)).claimed) == 1
    assert claim(lane=lane.pk, items=ids(job)).claimed == []


def test_claim_job_rate_ceiling_lets_one_through_and_says_when_the_next(lane):
    job = owned_job(lane, *[ShardSpec(pending=1) for _ in range(5)], rate_limit_per_min=60)
    assert len(claim(lane=lane.pk, items=ids(job)).claimed) == 1

    async def room():
        async with connected() as (conn,):
            return await claim_store.job_room(conn, [job.pk])

    assert 0 < run(room())[job.pk].rate_in <= 1.1
    assert claim(lane=lane.pk, items=ids(job)).claimed == []


def test_claim_job_without_ceiling_keeps_no_schedule(lane):
    job = owned_job(lane, *[ShardSpec(pending=1) for _ in range(5)])
    assert len(claim(lane=lane.pk, items=ids(job)).claimed) == 5
    assert Job.objects.get(pk=job.pk).rate_at is None
