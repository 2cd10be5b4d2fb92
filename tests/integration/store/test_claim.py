"""The item boundary: who may claim what, once, and never over a limit."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from django.utils import timezone

from batches.domain.states import JobStatus, ShardStatus
from batches.models import Account, Call, Gateway, Item, Job
from batches.store import claim as claim_store
from batches.store.connections import connect
from tests.factories import ShardSpec, items_of, make_lane

from .support import (
    answer,
    assert_sound,
    claim,
    claim_async,
    connected,
    owned_job,
    plain_connection,
    run,
    scope,
    settle_all,
    sql,
    wait_until_blocked,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def lane():
    return make_lane()


def claimed_ids(result: claim_store.ClaimResult) -> list[int]:
    return sorted(c.item_id for c in result.claimed)


def ids(job: Job, state: str = "pending") -> list[int]:
    return [item.pk for item in items_of(job, state)]


# --- what a claim writes -------------------------------------------------------------------------


def test_claim_pending_item_becomes_submitted_with_a_call_and_spends_budget(lane):
    job = owned_job(lane, ShardSpec(pending=2))
    first, second = items_of(job)
    result = claim(lane=lane.pk, items=[first.pk])
    (made,) = result.claimed
    first.refresh_from_db()
    call = Call.objects.get(pk=made.call_id)
    assert (first.state, first.call_id, first.attempt) == ("submitted", call.pk, 1)
    assert (call.item_ids, call.lane_id, call.account_id) == (
        [first.pk],
        lane.pk,
        first.shard.account_id,
    )
    assert (call.answered_at, call.lost_at, call.outcome) == (None, None, None)
    assert Job.objects.get(pk=job.pk).budget_used == 1
    assert Item.objects.get(pk=second.pk).state == "pending"
    assert_sound()


def test_claim_two_accounts_and_jobs_in_one_group_are_each_claimed_once(lane):
    jobs = [owned_job(lane, ShardSpec(pending=2), ShardSpec(pending=2)) for _ in range(2)]
    firsts = [item.pk for job in jobs for item in items_of(job) if item.seq == 1]
    result = claim(lane=lane.pk, items=firsts)
    assert claimed_ids(result) == sorted(firsts)
    assert len({c.call_id for c in result.claimed}) == 4
    assert_sound()


def test_claim_same_item_named_twice_is_claimed_once(lane):
    job = owned_job(lane)
    item = ids(job)[0]
    assert claimed_ids(claim(lane=lane.pk, items=[item, item])) == [item]
    assert Call.objects.count() == 1
    assert_sound()


def test_claim_clears_what_an_earlier_try_left(lane):
    job = owned_job(lane, ShardSpec(pending=1))
    (item,) = items_of(job)
    Item.objects.filter(pk=item.pk).update(
        category="retry_system", attempt=2, due_at=timezone.now() - timedelta(seconds=1), msg_id="x"
    )
    (made,) = claim(lane=lane.pk, items=[item.pk]).claimed
    item.refresh_from_db()
    assert (made.attempt, item.attempt, item.due_at, item.msg_id) == (3, 3, None, None)


# --- what may not be claimed ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["inflight", "accepted", "in_doubt", "confirmed", "failed", "abandoned"]
)
def test_claim_item_that_is_not_pending_does_nothing(lane, kind):
    job = owned_job(lane, ShardSpec(**{kind: 1}, pending=1))
    sql("update batches_shard set status = 'running'")
    before = Item.objects.exclude(state="pending").values().get()
    used = Job.objects.get(pk=job.pk).budget_used
    assert claim(lane=lane.pk, items=[before["id"]]).claimed == []
    assert Item.objects.values().get(pk=before["id"]) == before
    assert Job.objects.get(pk=job.pk).budget_used == used


@pytest.mark.parametrize("status", sorted(set(JobStatus) - {JobStatus.RUNNING}))
def test_claim_job_that_does_not_run_gives_nothing_and_says_so(lane, status):
    job = owned_job(lane)
    sql("update batches_job set status = %s", status)
    result = claim(lane=lane.pk, items=ids(job))
    assert result.claimed == []
    assert result.stopped_jobs == {job.pk}


@pytest.mark.parametrize(
    "status", sorted(set(ShardStatus) - {ShardStatus.PENDING, ShardStatus.RUNNING})
)
def test_claim_shard_that_does_not_run_gives_nothing(lane, status):
    job = owned_job(lane)
    sql("update batches_shard set status = %s", status)
    assert claim(lane=lane.pk, items=ids(job)).claimed == []


def test_claim_paused_shard_leaves_the_others_running(lane):
    job = owned_job(lane, ShardSpec(pending=1), ShardSpec(pending=1))
    first, second = items_of(job)
    sql("update batches_shard set status = 'paused' where id = %s", first.shard_id)
    assert claimed_ids(claim(lane=lane.pk, items=[first.pk, second.pk])) == [second.pk]


@pytest.mark.parametrize("how", ["expired", "ended", "not the owner", "no owner", "no such lane"])
def test_claim_by_a_lane_that_is_gone_or_not_the_owner_gives_nothing(lane, how):
    job = owned_job(lane)
    claimant = lane.pk
    match how:
        case "expired":
            sql("update batches_lane set lease_expires_at = clock_timestamp()")
        case "ended":
            sql("update batches_lane set ended_at = clock_timestamp()")
        case "not the owner":
            claimant = make_lane().pk
        case "no owner":
            sql("update batches_account set lane_id = null")
        case _:
            claimant = lane.pk + 1000
    result = claim(lane=claimant, items=ids(job))
    assert result.claimed == []
    assert result.gates == {}, "an account that is not ours has no gate for us"
    assert_sound()


@pytest.mark.parametrize("what", ["account", "gateway"])
def test_claim_account_or_gateway_switched_off_gives_nothing(lane, what):
    job = owned_job(lane)
    {"account": Account, "gateway": Gateway}[what].objects.update(is_active=False)
    result = claim(lane=lane.pk, items=ids(job))
    assert (result.claimed, result.gates) == ([], {})


def test_claim_account_on_hold_gives_nothing_until_the_hold_ends(lane):
    job = owned_job(lane)
    sql("update batches_account set hold_until = clock_timestamp() + interval '60 s'")
    assert claim(lane=lane.pk, items=ids(job)).gates == {}
    sql("update batches_account set hold_until = clock_timestamp() - interval '1 ms'")
    assert len(claim(lane=lane.pk, items=ids(job)[:1]).claimed) == 1


def test_claim_item_due_later_waits(lane):
    job = owned_job(lane, ShardSpec(pending=1))
    sql("update batches_item set due_at = clock_timestamp() + interval '60 s'")
    assert claim(lane=lane.pk, items=ids(job)).claimed == []
    sql("update batches_item set due_at = clock_timestamp() - interval '1 ms'")
    assert len(claim(lane=lane.pk, items=ids(job)).claimed) == 1


# --- once, with any number of claimants ----------------------------------------------------------


def test_claim_same_item_by_two_connections_at_once_is_claimed_once(lane):
    job = owned_job(lane, ShardSpec(pending=20))
    wanted = ids(job)
    of = scope(wanted)

    async def go():
        async with connected(2) as conns:
            got = []
            for item in wanted:
                got += await asyncio.gather(
                    *(claim_async(conn=c, lane=lane.pk, items=[item], of=of) for c in conns)
                )
            return [c.item_id for result in got for c in result.claimed]

    taken = run(go())
    assert len(taken) == len(set(taken))
    assert len(taken) >= 1
    assert Call.objects.count() == len(taken)
    assert_sound()


def test_claim_waits_for_a_takeover_in_progress_and_then_gives_nothing(lane):
    """The fence is the account row: who claims while another lane adopts comes too late."""
    job = owned_job(lane)
    other = make_lane()
    wanted = ids(job)
    of = scope(wanted)
    with plain_connection() as adopting:
        adopting.execute("update batches_account set lane_id = %s", [other.pk])
        result = run(_claim_while(adopting, lane.pk, wanted, of))
    assert (result.claimed, result.gates) == ([], {})
    assert len(claim(lane=other.pk, items=wanted[:1]).claimed) == 1


async def _claim_while(holder, lane_id, wanted, of):
    """Start a claim, see that it waits for `holder`, commit the latter, give the result."""
    async with connected() as (conn,):
        claiming = asyncio.create_task(claim_async(conn=conn, lane=lane_id, items=wanted, of=of))
        await asyncio.to_thread(wait_until_blocked, conn.info.backend_pid)
        assert not claiming.done()
        holder.commit()
        return await claiming


STOPS = {
    "pause": "update batches_job set status = 'pausing'",
    "cancel": "update batches_job set status = 'cancelling'",
    "terminate": "update batches_job set status = 'terminating'",
    "pause of the shard": "update batches_shard set status = 'paused'",
    "cut of the budget": "update batches_job set budget_limit = 1, budget_used = 1",
    "stage": "update batches_job set stages = '{1}', budget_used = 1",
}


@pytest.mark.parametrize("what", STOPS)
def test_claim_racing_a_stop_that_commits_first_claims_nothing(lane, what):
    """Stops at the item boundary: the claim waits for the verb's lock and then sees its change."""
    job = owned_job(lane)
    wanted = ids(job)
    of = scope(wanted)
    with plain_connection() as verb:
        verb.execute("select 1 from batches_job where id = %s for no key update", [job.pk])
        verb.execute(STOPS[what])
        result = run(_claim_while(verb, lane.pk, wanted, of))
    assert result.claimed == []
    assert set(Item.objects.values_list("state", flat=True)) == {"pending"}
    assert Call.objects.count() == 0


def test_claim_racing_a_stop_that_rolls_back_claims(lane):
    job = owned_job(lane)
    wanted = ids(job)
    of = scope(wanted)

    async def go():
        async with connected() as (conn,):
            task = asyncio.create_task(
                claim_async(conn=conn, lane=lane.pk, items=wanted[:1], of=of)
            )
            await asyncio.to_thread(wait_until_blocked, conn.info.backend_pid)
            verb.rollback()
            return await task

    with plain_connection() as verb:
        verb.execute("select 1 from batches_job for no key update")
        verb.execute("update batches_job set status = 'cancelling'")
        assert len(run(go()).claimed) == 1


# --- calls whose claim nobody heard of -----------------------------------------------------------


def test_unsent_calls_names_open_calls_of_this_lane_that_are_not_known(lane):
    job = owned_job(lane, *[ShardSpec(pending=1) for _ in range(4)])
    made = claim(lane=lane.pk, items=ids(job)).claimed
    answered = Item.objects.get(pk=made[0].item_id)
    settle_all(answer(answered, "confirmed"))
    other = make_lane()
    foreign = owned_job(other, ShardSpec(pending=1))
    claim(lane=other.pk, items=ids(foreign))

    async def go():
        conn = await connect("test")
        try:
            return await claim_store.unsent_calls(conn, lane=lane.pk, known=[made[1].call_id])
        finally:
            await conn.close()

    assert sorted(row.id for row in run(go())) == sorted(c.call_id for c in made[2:])
