"""What a recorded outcome changes, from every origin and under every job, and only once."""

from __future__ import annotations

import pytest

from batches.domain.decisions import Decision, Fate
from batches.models import Account, Call, Job, Shard
from batches.store.advance import rescue_lost_calls
from tests.factories import ShardSpec, items_of, make_job, make_lane

from .support import (
    DECISIONS,
    MINUTE,
    answer,
    assert_sound,
    claim,
    minute_sums,
    open_gates,
    owned_job,
    settle_all,
    snapshot,
    sql,
    waiting_job,
)

pytestmark = pytest.mark.django_db(transaction=True)


COUNTERS = ("pending", "submitted", "in_doubt", "confirmed", "failed", "abandoned")
#: (origin, fate) → changes of the shard's counters, of the budget, and of the minute
MATRIX: dict[tuple[str, str], tuple[dict[str, int], int, dict[str, int]]] = {
    ("inflight", "confirmed"): (
        {"pending": -1, "confirmed": 1}, 0, {"sent": 1, "confirmed": 1}
    ),
    ("inflight", "accepted"): ({"pending": -1, "submitted": 1}, 0, {"sent": 1}),
    ("inflight", "failed"): ({"pending": -1, "failed": 1}, -1, {"failed": 1, "returned": 1}),
    ("inflight", "retry"): ({}, -1, {"returned": 1}),
    # it never left
    ("inflight", "retry_uncounted"): ({}, -1, {}),
    ("inflight", "doubt"): (
        {"pending": -1, "submitted": 1, "in_doubt": 1}, 0, {"sent": 1, "in_doubt": 1}
    ),
    ("in_doubt", "confirmed"): (
        {"submitted": -1, "in_doubt": -1, "confirmed": 1}, 0, {"confirmed": 1}
    ),
    ("in_doubt", "accepted"): ({"in_doubt": -1}, 0, {}),
    ("in_doubt", "failed"): (
        {"submitted": -1, "in_doubt": -1, "failed": 1}, -1, {"failed": 1}
    ),
    # counted as sent when it went in doubt
    ("in_doubt", "retry"): ({"submitted": -1, "in_doubt": -1, "pending": 1}, -1, {}),
    ("in_doubt", "retry_uncounted"): ({"submitted": -1, "in_doubt": -1, "pending": 1}, -1, {}),
    ("in_doubt", "doubt"): ({}, 0, {}),
}  # fmt: skip
STATUSES = {
    "inflight": ["running", "pausing", "cancelling", "terminating"],
    "in_doubt": [
        "running", "pausing", "paused", "verifying", "cancelling", "cancelled", "terminating",
        "terminated",
    ],
}  # fmt: skip
CASES = [(origin, fate, status) for origin, fate in MATRIX for status in STATUSES[origin]]


@pytest.mark.parametrize(("origin", "fate", "status"), CASES)
def test_settle_each_fate_from_each_origin_changes_what_the_table_says(origin, fate, status):
    job, item = waiting_job(origin, status)
    before = Shard.objects.values(*COUNTERS).get(job=job)
    used = job.budget_used
    settle_all(answer(item, fate))
    counters, budget, minute = MATRIX[origin, fate]
    if status == "cancelled" and fate.startswith("retry"):
        counters = {"submitted": -1, "in_doubt": -1, "abandoned": 1}
    after = Shard.objects.values(*COUNTERS).get(job=job)
    changed = {k: after[k] - before[k] for k in COUNTERS if after[k] != before[k]}
    assert changed == counters
    assert Job.objects.get(pk=job.pk).budget_used - used == budget
    assert minute_sums(job) == dict.fromkeys(MINUTE, 0) | minute
    assert_sound()


@pytest.mark.parametrize(
    ("fate", "state", "attempt"),
    [
        ("confirmed", "confirmed", 1),
        ("accepted", "submitted", 1),
        ("failed", "failed", 1),
        ("retry", "pending", 1),
        ("retry_uncounted", "pending", 0),
        ("doubt", "submitted", 1),
    ],
)
@pytest.mark.parametrize("origin", ["inflight", "in_doubt"])
def test_settle_writes_the_item_and_its_call(origin, fate, state, attempt):
    _, item = waiting_job(origin)
    settle_all(answer(item, fate))
    doubt_again = origin == "in_doubt" and fate == "doubt"
    item.refresh_from_db()
    call = Call.objects.get(pk=item.call_id)
    decision = DECISIONS[fate]
    assert (item.state, item.attempt) == (state, attempt)
    assert (item.accepted_at is not None) == (fate == "accepted")
    assert (item.in_doubt_at is not None) == (fate == "doubt")
    assert (item.settled_at is not None) == (state in ("confirmed", "failed"))
    assert (item.due_at is not None) == (decision.wait > 0)
    if fate in ("confirmed", "accepted"):
        assert (item.msg_id, item.category, item.code) == ("m1", None, None)
    else:
        assert (item.category, item.code) == (decision.category, decision.code)
    assert (call.answered_at is None) == (fate == "doubt")
    if not doubt_again:
        assert call.outcome == decision.outcome
    assert (call.lost_at is not None) == (fate == "doubt" or origin == "in_doubt")


# --- once ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fate", sorted(DECISIONS))
@pytest.mark.parametrize("origin", ["inflight", "in_doubt"])
def test_settle_repeated_changes_nothing(origin, fate):
    """A lane whose connection broke at the commit settles the group again."""
    job, item = waiting_job(origin)
    settle_all(answer(item, fate))
    before = snapshot(job)
    settle_all(answer(item, fate))
    assert snapshot(job) == before


def test_settle_repeated_slows_and_recovers_an_account_only_once():
    slowing = Decision(
        Fate.RETRY, "refused", category="rate_limited", refund=True, counted=False,
        slow_down=True, hold=60.0, hold_reason="backoff",
    )  # fmt: skip
    job, item = waiting_job("inflight")
    again = answer(item, "retry", decision=slowing, late=2.0)
    settle_all(again)
    before = snapshot(job)
    assert Account.objects.get(pk=item.shard.account_id).throttle == 0.5
    settle_all(again)
    assert snapshot(job) == before
    other, item = waiting_job("inflight")
    sql("update batches_account set throttle = 0.5 where id = %s", item.shard.account_id)
    good = answer(item, "confirmed", throttled=True)
    settle_all(good)
    before = snapshot(other)
    settle_all(good)
    assert snapshot(other) == before
    assert Account.objects.get(pk=item.shard.account_id).throttle == pytest.approx(0.55)


@pytest.mark.parametrize("second", sorted(DECISIONS))
@pytest.mark.parametrize("first", ["confirmed", "accepted", "failed", "retry"])
def test_settle_first_proof_stands_whatever_is_said_later(first, second):
    job, item = waiting_job("inflight")
    settle_all(answer(item, first))
    before = snapshot(job)
    settle_all(answer(item, second))
    assert snapshot(job) == before


@pytest.mark.parametrize("fate", sorted(DECISIONS))
def test_settle_of_an_older_call_leaves_the_item_of_a_newer_one_alone(fate):
    """A refused item is on its way again: what its first call is said to be is history."""
    lane = make_lane()
    job = owned_job(lane, ShardSpec(pending=1))
    (item,) = items_of(job)
    claim(lane=lane.pk, items=[item.pk])
    item.refresh_from_db()
    old = item.call_id
    settle_all(answer(item, "retry_uncounted"))
    open_gates()
    claim(lane=lane.pk, items=[item.pk])
    item.refresh_from_db()
    assert item.call_id != old
    before = snapshot(job)
    settle_all(answer(item, fate, call_id=old))
    assert snapshot(job) == before


def test_settle_of_a_call_of_another_item_changes_nothing():
    job, item = waiting_job("inflight")
    other_job, other = waiting_job("inflight")
    before = snapshot(job), snapshot(other_job)["items"]
    settle_all(answer(item, "confirmed", call_id=other.call_id))
    assert snapshot(job) == before[0]
    assert snapshot(other_job)["items"] == before[1]


# --- late truths ---------------------------------------------------------------------------------


@pytest.mark.parametrize("fate", ["confirmed", "accepted", "failed", "retry"])
def test_settle_after_the_rescue_takes_the_item_out_of_doubt(fate):
    """Accepted from any owner: the sender was taken for dead, its answer arrives all the same."""
    dead = make_lane(alive=False)
    job = make_job(shards=[ShardSpec(inflight=1, pending=1)], lane=dead)
    (item,) = items_of(job, "submitted")
    assert rescue_lost_calls() == 1
    assert Shard.objects.get(job=job).in_doubt == 1
    settle_all(answer(item, fate))
    item.refresh_from_db()
    call = Call.objects.get(pk=item.call_id)
    assert item.in_doubt_at is None
    assert (call.answered_at is None, call.lost_at is None) == (False, False)
    assert Shard.objects.get(job=job).in_doubt == 0
    assert minute_sums(job)["sent"] == 1
    assert_sound()


def test_settle_doubt_after_the_rescue_says_nothing_new():
    dead = make_lane(alive=False)
    job = make_job(shards=[ShardSpec(inflight=1, pending=1)], lane=dead)
    (item,) = items_of(job, "submitted")
    rescue_lost_calls()
    before = snapshot(job)
    settle_all(answer(item, "doubt"))
    assert snapshot(job) == before


def test_settle_late_refusal_in_a_cancelled_job_abandons_and_returns_the_send():
    job, item = waiting_job("in_doubt", "cancelled")
    settle_all(answer(item, "retry"))
    item.refresh_from_db()
    assert (item.state, item.settled_at is not None) == ("abandoned", True)
    assert Job.objects.get(pk=job.pk).budget_used == 1


def test_settle_a_failure_that_never_left_is_no_send():
    job, item = waiting_job("inflight")
    decision = Decision(Fate.FAILED, "not_sent", category="render", refund=True, bad=True)
    settle_all(answer(item, "failed", decision=decision))
    assert minute_sums(job) == dict.fromkeys(MINUTE, 0) | {"failed": 1}
