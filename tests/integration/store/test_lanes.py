"""Leases, adoption, sharing, and what a dead lane leaves behind."""

from __future__ import annotations

import asyncio

import pytest

from batches.domain.states import JobStatus
from batches.models import Account, Call, Event, Gateway, Item, JobMinute, Lane, Shard
from batches.store import lanes
from batches.store.advance import rescue_lost_calls
from batches.store.ensure import lane_load, prune_lanes
from tests.factories import ShardSpec, items_of, make_account, make_job, make_lane

from .support import assert_sound, connected, plain_connection, run, snapshot, sql

pytestmark = pytest.mark.django_db(transaction=True)


def call(function, **more):
    """Run one of the lanes' store functions on a connection of its own."""

    async def go():
        async with connected() as (conn,):
            return await function(conn, **more)

    return run(go())


def runnable_accounts(count: int, **job) -> list[int]:
    accounts = [make_account() for _ in range(count)]
    make_job(shards=[ShardSpec(pending=2, account=a) for a in accounts], **job)
    return [a.pk for a in accounts]


def expire(lane_id: int) -> None:
    sql("update batches_lane set lease_expires_at = clock_timestamp() where id = %s", lane_id)


# --- leases --------------------------------------------------------------------------------------


def test_start_lane_is_live_and_every_turn_has_an_id_of_its_own():
    first = call(lanes.start_lane, worker="w", lease=10.0)
    second = call(lanes.start_lane, worker="w", lease=10.0)
    assert second > first
    assert lane_load().live_lanes == 2


def test_renew_live_lane_extends_its_lease_and_tells_of_a_wish_to_stop():
    lane = call(lanes.start_lane, worker="w", lease=1.0)
    before = Lane.objects.get(pk=lane).lease_expires_at
    assert call(lanes.renew_lane, lane=lane, lease=60.0, sent=7) is False
    after = Lane.objects.get(pk=lane)
    assert after.lease_expires_at > before
    assert after.sent == 7
    sql("update batches_lane set stop_requested = true")
    assert call(lanes.renew_lane, lane=lane, lease=60.0, sent=7) is True


@pytest.mark.parametrize("how", ["expired", "ended", "unknown"])
def test_renew_lane_that_is_gone_is_refused_and_stays_gone(how):
    """A lane that was away too long must never come back: its accounts may have a new owner."""
    lane = make_lane().pk
    if how == "expired":
        expire(lane)
    elif how == "ended":
        sql("update batches_lane set ended_at = clock_timestamp()")
    else:
        lane += 1000
    assert call(lanes.renew_lane, lane=lane, lease=60.0, sent=1) is None
    assert how == "unknown" or lane_load().live_lanes == 0


def test_end_lane_lets_go_of_its_accounts_only():
    mine, other = make_lane(), make_lane()
    kept = make_account(lane=other)
    freed = make_account(lane=mine)
    call(lanes.end_lane, lane=mine.pk, sent=3)
    assert Account.objects.get(pk=freed.pk).lane_id is None
    assert Account.objects.get(pk=kept.pk).lane_id == other.pk
    assert lane_load().live_lanes == 1


# --- adoption ------------------------------------------------------------------------------------


def test_adopt_takes_accounts_with_work_and_no_live_owner():
    dead = make_lane(alive=False)
    ended = make_lane()
    sql("update batches_lane set ended_at = clock_timestamp() where id = %s", ended.pk)
    live = make_lane()
    free, of_dead, of_ended, of_live = runnable_accounts(4)
    for account, owner in ((of_dead, dead), (of_ended, ended), (of_live, live)):
        Account.objects.filter(pk=account).update(lane=owner)
    me = make_lane()
    assert sorted(call(lanes.adopt, lane=me.pk, most=10)) == sorted([free, of_dead, of_ended])
    assert Account.objects.get(pk=of_live).lane_id == live.pk


@pytest.mark.parametrize("status", sorted(set(JobStatus) - {JobStatus.RUNNING}))
def test_adopt_leaves_accounts_whose_jobs_do_not_run(status):
    runnable_accounts(2)
    sql("update batches_job set status = %s", status)
    assert call(lanes.adopt, lane=make_lane().pk, most=10) == []


@pytest.mark.parametrize(
    "why", ["account off", "gateway off", "shard paused", "nothing left", "not yet", "no room"]
)
def test_adopt_leaves_accounts_that_cannot_run(why):
    runnable_accounts(2)
    match why:
        case "account off":
            Account.objects.update(is_active=False)
        case "gateway off":
            Gateway.objects.update(is_active=False)
        case "shard paused":
            sql("update batches_shard set status = 'paused'")
        case "nothing left":
            sql("update batches_shard set pending = 0, confirmed = total")
        case "not yet":
            sql("update batches_job set start_at = clock_timestamp() + interval '1 hour'")
        case _:
            pass
    most = 0 if why == "no room" else 10
    assert call(lanes.adopt, lane=make_lane().pk, most=most) == []
    assert why == "no room" or lane_load().runnable_accounts == 0


@pytest.mark.parametrize("how", ["expired", "ended"])
def test_adopt_by_a_lane_that_is_gone_takes_nothing(how):
    runnable_accounts(2)
    me = make_lane()
    if how == "expired":
        expire(me.pk)
    else:
        sql("update batches_lane set ended_at = clock_timestamp()")
    assert call(lanes.adopt, lane=me.pk, most=10) == []
    assert not Account.objects.exclude(lane=None).exists()


def test_adopt_by_several_at_once_gives_each_account_to_one():
    accounts = runnable_accounts(60)
    many = [make_lane().pk for _ in range(6)]

    async def go():
        async with connected(6) as conns:
            return await asyncio.gather(
                *(
                    lanes.adopt(conn, lane=lane, most=10)
                    for conn, lane in zip(conns, many, strict=True)
                )
            )

    taken = run(go())
    all_taken = [account for mine in taken for account in mine]
    assert len(all_taken) == len(set(all_taken))
    assert all(len(mine) <= 10 for mine in taken)
    owners = dict(Account.objects.filter(pk__in=accounts).values_list("pk", "lane_id"))
    for lane, mine in zip(many, taken, strict=True):
        assert all(owners[account] == lane for account in mine)


def test_adopt_does_not_wait_for_an_account_that_somebody_locks():
    locked, free = runnable_accounts(2)
    with plain_connection() as holder:
        holder.execute("select 1 from batches_account where id = %s for update", [locked])
        assert call(lanes.adopt, lane=make_lane().pk, most=10) == [free]


def test_release_gives_up_the_named_accounts_if_they_are_ours():
    me, other = make_lane(), make_lane()
    mine, kept, foreign = make_account(lane=me), make_account(lane=me), make_account(lane=other)
    call(lanes.release, lane=me.pk, accounts=[mine.pk, foreign.pk])
    owners = dict(Account.objects.values_list("pk", "lane_id"))
    assert (owners[mine.pk], owners[kept.pk], owners[foreign.pk]) == (None, me.pk, other.pk)


@pytest.mark.parametrize(
    ("accounts", "live", "share"), [(7, 2, 4), (8, 2, 4), (1, 3, 1), (0, 2, 0), (5, 0, 5)]
)
def test_fair_share_splits_runnable_accounts_between_live_lanes_rounding_up(accounts, live, share):
    runnable_accounts(accounts) if accounts else None
    for _ in range(live):
        make_lane()
    make_lane(alive=False)
    make_account()  # nothing to run
    assert call(lanes.fair_share) == share


# --- what a lane sees ----------------------------------------------------------------------------


def test_view_shows_only_accounts_and_shards_that_may_run():
    me = make_lane()
    seen = make_account(lane=me)
    off = make_account(lane=me, is_active=False)
    gateway_off = make_account(lane=me)
    Gateway.objects.filter(pk=gateway_off.gateway_id).update(is_active=False)
    foreign = make_account(lane=make_lane())
    job = make_job(
        shards=[ShardSpec(pending=1, account=a) for a in (seen, off, gateway_off, foreign)]
    )
    assert [row.id for row in call(lanes.accounts, lane=me.pk)] == [seen.pk]
    shards = call(lanes.shards, lane=me.pk)
    assert Shard.objects.get(job=job, account=seen).pk in [row.id for row in shards]
    assert foreign.pk not in [row.account_id for row in shards]


def test_start_shards_moves_pending_ones_only():
    job = make_job(
        shards=[
            ShardSpec(pending=1, status=status)
            for status in ("pending", "running", "paused", "cancelled")
        ]
    )
    ids = list(Shard.objects.filter(job=job).order_by("ordinal").values_list("pk", flat=True))
    call(lanes.start_shards, ids=ids)
    statuses = list(Shard.objects.order_by("ordinal").values_list("status", flat=True))
    assert statuses == ["running", "running", "paused", "cancelled"]


def test_next_items_reads_pending_and_due_ones_in_order_from_where_it_was():
    job = make_job(shards=[ShardSpec(confirmed=1, pending=6), ShardSpec(pending=3)])
    first, second = Shard.objects.filter(job=job).order_by("ordinal")
    sql("update batches_item set due_at = clock_timestamp() + interval '1 h' where seq = 3")
    sql("update batches_item set due_at = clock_timestamp() - interval '1 h' where seq = 4")
    rows = call(lanes.next_items, after=[(first.pk, 0), (second.pk, 1)], each=3)
    assert [(shard, seq) for _, shard, seq, *_ in rows] == [
        (first.pk, 2),
        (first.pk, 4),
        (first.pk, 5),
        (second.pk, 2),
    ]
    *_, target, fields = rows[0]
    assert fields[1] == target


# --- lost calls ----------------------------------------------------------------------------------


def test_rescue_marks_calls_of_gone_lanes_in_doubt_once_and_leaves_live_ones():
    dead, live = make_lane(alive=False), make_lane()
    ended = make_lane()
    sql("update batches_lane set ended_at = clock_timestamp() where id = %s", ended.pk)
    lost = make_job(shards=[ShardSpec(inflight=2, pending=1), ShardSpec(inflight=1)], lane=dead)
    also_lost = make_job(shards=[ShardSpec(inflight=1, confirmed=1)], lane=ended)
    flying = make_job(shards=[ShardSpec(inflight=2, pending=1)], lane=live)
    untouched = snapshot(flying)
    assert rescue_lost_calls() == 4
    assert snapshot(flying) == untouched
    for job, count in ((lost, 3), (also_lost, 1)):
        items = Item.objects.filter(job_id=job.pk, in_doubt_at__isnull=False)
        assert [item.category for item in items] == ["lost"] * count
        assert JobMinute.objects.get(job=job).in_doubt == count
        (event,) = Event.objects.filter(job=job, kind="job.calls_lost")
        assert event.data == {"calls": count}
    assert_sound()
    after = snapshot(lost)
    assert rescue_lost_calls() == 0
    assert snapshot(lost) == after


def test_rescue_of_a_pruned_lane_works_too():
    dead = make_lane(alive=False)
    job = make_job(shards=[ShardSpec(inflight=1)], lane=dead)
    Lane.objects.all().delete()
    assert rescue_lost_calls() == 1
    assert Shard.objects.get(job=job).in_doubt == 1


def test_rescue_call_of_several_targets_takes_those_that_still_wait():
    dead = make_lane(alive=False)
    job = make_job(shards=[ShardSpec(inflight=3, pending=1)], lane=dead)
    first, second, third = items_of(job, "submitted")
    Call.objects.filter(pk__in=[second.call_id, third.call_id]).delete()
    Call.objects.filter(pk=first.call_id).update(item_ids=[first.pk, second.pk, third.pk])
    Item.objects.filter(pk__in=[second.pk, third.pk]).update(call_id=first.call_id)
    sql("update batches_item set state = 'confirmed' where id = %s", second.pk)
    sql("update batches_shard set pending = pending - 1, confirmed = confirmed + 1")
    assert rescue_lost_calls() == 1
    assert Shard.objects.get(job=job).in_doubt == 2
    assert Item.objects.get(pk=second.pk).state == "confirmed"
    assert_sound()


def test_rescue_by_two_at_once_marks_each_call_once():
    dead = make_lane(alive=False)
    job = make_job(shards=[ShardSpec(inflight=30) for _ in range(5)], lane=dead)

    def rescue() -> int:
        from django.db import connection

        try:
            return rescue_lost_calls()
        finally:
            connection.close()

    async def go() -> list[int]:
        return list(await asyncio.gather(*(asyncio.to_thread(rescue) for _ in range(3))))

    assert sum(run(go())) == 150
    assert sum(JobMinute.objects.filter(job=job).values_list("in_doubt", flat=True)) == 150
    assert_sound()


# --- load and pruning ----------------------------------------------------------------------------


def test_prune_forgets_turns_a_day_old_unless_an_account_names_them():
    old, named, fresh = make_lane(), make_lane(), make_lane(alive=False)
    make_account(lane=named)
    sql(
        "update batches_lane set lease_expires_at = clock_timestamp() - interval '25 hours'"
        " where id = any(%s)",
        [old.pk, named.pk],
    )
    assert prune_lanes() == 1
    assert set(Lane.objects.values_list("pk", flat=True)) == {named.pk, fresh.pk}
