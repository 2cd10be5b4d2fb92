"""What recorded outcomes do to shards, to the breaker and to the pace of an account."""

from __future__ import annotations

from dataclasses import replace

import pytest

from batches.domain.decisions import Decision, Fate
from batches.models import Account, Call, Event, Item, Job, Shard
from tests.factories import ShardSpec, items_of, make_job, make_lane

from .support import (
    DECISIONS,
    answer,
    assert_sound,
    claim,
    open_gates,
    own,
    owned_job,
    settle_all,
    sql,
    waiting_job,
)

pytestmark = pytest.mark.django_db(transaction=True)


# --- shards --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "fate", "status"),
    [
        ({"confirmed": 1}, "confirmed", "completed"),
        ({"confirmed": 1}, "failed", "completed"),
        ({"failed": 2}, "failed", "failed"),
        ({"failed": 2}, "confirmed", "completed"),
        ({"abandoned": 1}, "failed", "completed"),
        ({"confirmed": 1}, "doubt", "running"),
        ({"confirmed": 1}, "accepted", "running"),
        ({"confirmed": 1}, "retry", "running"),
        ({"pending": 1}, "confirmed", "running"),
        ({"accepted": 1}, "confirmed", "running"),
        ({"in_doubt": 1}, "failed", "running"),
    ],
)
def test_settle_last_item_ends_the_shard(spec, fate, status):
    job = make_job(shards=[ShardSpec(inflight=1, **spec)])
    item = Item.objects.get(call__in=Call.objects.filter(answered_at=None, lost_at=None))
    settle_all(answer(item, fate))
    assert Shard.objects.get(job=job).status == status


def test_settle_last_item_of_a_paused_shard_ends_it_and_clears_the_reason():
    job = make_job(shards=[ShardSpec(inflight=1, status="paused", reason="operator")])
    (item,) = items_of(job)
    settle_all(answer(item, "confirmed"))
    shard = Shard.objects.get(job=job)
    assert (shard.status, shard.reason) == ("completed", "")


def test_settle_moves_the_cursor_to_the_highest_settled_item_only():
    lane = make_lane()
    job = owned_job(lane, ShardSpec(pending=3))
    items = items_of(job)
    for item in items:
        claim(lane=lane.pk, items=[item.pk])
        open_gates()
    first, second, third = items_of(job)
    settle_all(answer(second, "confirmed"))
    assert Shard.objects.get(job=job).cursor == 2
    settle_all(answer(third, "retry"))
    assert Shard.objects.get(job=job).cursor == 2
    settle_all(answer(first, "failed"))
    assert Shard.objects.get(job=job).cursor == 2


def test_settle_group_of_many_shards_and_fates_keeps_every_sum():
    fates = sorted(DECISIONS)
    jobs = [
        make_job(shards=[ShardSpec(inflight=1, in_doubt=1, pending=2) for _ in range(6)])
        for _ in range(3)
    ]
    waiting = [item for job in jobs for item in items_of(job, "submitted")]
    answers = [answer(item, fates[n % len(fates)]) for n, item in enumerate(waiting)]
    done = settle_all(*answers)
    assert done == set()
    assert_sound(*jobs)


def test_settle_names_jobs_of_which_a_shard_has_nothing_left_to_send():
    ending, item = waiting_job("inflight", confirmed=1)
    going_on, other = waiting_job("inflight")
    done = settle_all(answer(item, "confirmed"), answer(other, "confirmed"))
    assert done == {ending.pk}
    assert going_on.pk not in done


def test_settle_call_of_several_targets_gives_each_its_own_fate():
    lane = make_lane()
    job = owned_job(lane, ShardSpec(pending=5))
    ids = [item.pk for item in items_of(job)]
    made = claim(lane=lane.pk, items=ids, size=5).claimed
    assert len({c.call_id for c in made}) == 1
    first = Item.objects.get(pk=ids[0])
    fates = ["confirmed", "accepted", "failed", "retry", "doubt"]
    together = replace(
        answer(first, "confirmed"),
        item_ids=tuple(ids),
        decisions=tuple(DECISIONS[fate] for fate in fates),
    )
    settle_all(together)
    states = [item.state for item in items_of(job)]
    assert states == ["confirmed", "submitted", "failed", "pending", "submitted"]
    assert Job.objects.get(pk=job.pk).budget_used == 3
    assert Call.objects.get().outcome == "mixed"
    assert_sound()
    settle_all(answer(Item.objects.get(pk=ids[4]), "confirmed"))  # its late truth
    assert Item.objects.get(pk=ids[4]).state == "confirmed"
    assert_sound()


# --- the breaker ---------------------------------------------------------------------------------


def test_settle_consecutive_bad_outcomes_trip_only_their_shard():
    job = make_job(
        shards=[ShardSpec(inflight=3, pending=2), ShardSpec(inflight=1, pending=2)],
        breaker_streak=3,
    )
    for item in items_of(job, "submitted"):
        settle_all(answer(item, "failed"))
    first, second = Shard.objects.filter(job=job).order_by("ordinal")
    assert (first.status, first.reason, first.bad_streak) == ("paused", "breaker", 3)
    assert (second.status, second.reason, second.bad_streak) == ("running", "", 1)
    (event,) = Event.objects.filter(kind="shard.tripped")
    assert (event.job_id, event.shard_ordinal) == (job.pk, 1)


def test_settle_good_outcome_starts_the_streak_anew():
    job = make_job(shards=[ShardSpec(inflight=4, pending=2)], breaker_streak=3)
    for item, fate in zip(
        items_of(job, "submitted"), ["failed", "failed", "confirmed", "doubt"], strict=True
    ):
        settle_all(answer(item, fate))
    shard = Shard.objects.get(job=job)
    assert (shard.status, shard.bad_streak) == ("running", 1)


# --- pace ----------------------------------------------------------------------------------------


def pace(item: Item) -> Account:
    return Account.objects.get(pk=item.shard.account_id)


def test_settle_rate_refusals_halve_down_to_a_twentieth_and_accepts_recover():
    lane = make_lane()
    job = make_job(shards=[ShardSpec(inflight=7, pending=1)], lane=lane)
    own(lane, job)
    slowing = Decision(
        Fate.RETRY, "refused", category="rate_limited", refund=True, counted=False,
        slow_down=True, hold=1.0, hold_reason="backoff",
    )  # fmt: skip
    seen = []
    items = items_of(job, "submitted")
    for item in items[:6]:
        settle_all(answer(item, "retry", decision=slowing))
        seen.append(pace(item).throttle)
    assert seen == [0.5, 0.25, 0.125, 0.0625, 0.05, 0.05]
    assert pace(items[0]).hold_reason == "backoff"
    settle_all(answer(items[6], "confirmed", throttled=True))
    assert pace(items[6]).throttle == pytest.approx(0.1)


def test_settle_shorter_hold_does_not_cut_a_longer_one():
    job = make_job(shards=[ShardSpec(inflight=2, pending=1)])
    first, second = items_of(job, "submitted")

    def holding(seconds: float) -> Decision:
        return Decision(
            Fate.RETRY, "not_sent", category="unreachable", refund=True, counted=False,
            hold=seconds, hold_reason="gateway",
        )  # fmt: skip

    settle_all(answer(first, "retry", decision=holding(300)))
    long = pace(first).hold_until
    settle_all(answer(second, "retry", decision=holding(1)))
    assert pace(first).hold_until == long


def test_settle_send_that_left_late_pushes_the_gate():
    _, item = waiting_job("inflight")
    settle_all(answer(item, "confirmed", late=30.0))
    ((ahead,),) = sql(
        "select extract(epoch from gate_at - clock_timestamp()) from batches_account where id = %s",
        item.shard.account_id,
    )
    assert 28 < ahead <= 30
