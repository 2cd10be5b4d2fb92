"""Moves that jobs make by themselves, on real rows."""

from __future__ import annotations

import pytest
from django.db import DataError

from batches.domain.states import JobStatus, PauseReason
from batches.models import Event, Item, Job, Shard
from batches.store import advance
from batches.store.advance import advance_jobs, rescue_lost_calls
from tests.factories import ShardSpec, items_of, make_job, make_lane

from .support import answer, assert_sound, claim, owned_job, plain_connection, settle_all, sql

pytestmark = pytest.mark.django_db(transaction=True)


def status(job: Job) -> tuple[str, str]:
    job.refresh_from_db()
    return job.status, job.pause_reason


@pytest.mark.parametrize(
    ("before", "spec", "columns", "after"),
    [
        ("running", {"confirmed": 2}, {}, ("completed", "")),
        ("running", {"failed": 2}, {}, ("completed", "")),
        ("running", {"confirmed": 1, "accepted": 1}, {}, ("verifying", "")),
        ("running", {"confirmed": 1, "in_doubt": 1}, {}, ("verifying", "")),
        ("running", {"pending": 1}, {}, ("running", "")),
        ("running", {"inflight": 1}, {}, ("running", "")),
        ("running", {"confirmed": 2, "pending": 1}, {"budget_limit": 2}, ("paused", "budget")),
        (
            "running",
            {"confirmed": 1, "inflight": 1, "pending": 1},
            {"budget_limit": 2},
            ("running", ""),
        ),
        ("running", {"confirmed": 2, "pending": 1}, {"stages": [2, 3]}, ("paused", "stage")),
        (
            "running",
            {"confirmed": 2, "pending": 1},
            {"stages": [2, 3], "stages_passed": 1},
            ("running", ""),
        ),
        ("pausing", {"inflight": 1, "pending": 2}, {}, ("pausing", "operator")),
        ("pausing", {"pending": 2, "in_doubt": 1}, {}, ("paused", "operator")),
        ("pausing", {"confirmed": 2}, {}, ("completed", "")),
        ("verifying", {"confirmed": 1, "accepted": 1}, {}, ("verifying", "")),
        ("verifying", {"confirmed": 2}, {}, ("completed", "")),
        ("verifying", {"pending": 1, "in_doubt": 1}, {}, ("running", "")),
        ("cancelling", {"pending": 3, "confirmed": 1}, {}, ("cancelled", "")),
        ("cancelling", {"pending": 3, "inflight": 1}, {}, ("cancelling", "")),
        ("cancelling", {"pending": 3, "in_doubt": 1}, {}, ("cancelled", "")),
        ("terminating", {"pending": 3, "inflight": 1}, {}, ("terminating", "")),
        ("terminating", {"pending": 3, "in_doubt": 1}, {}, ("terminated", "")),
        ("paused", {"confirmed": 1}, {"pause_reason": "operator"}, ("paused", "operator")),
        ("completed", {"confirmed": 1}, {}, ("completed", "")),
        ("terminated", {"confirmed": 1}, {}, ("terminated", "")),
        ("cancelled", {"confirmed": 1}, {}, ("cancelled", "")),
        ("awaiting", {"pending": 1}, {}, ("awaiting", "")),
        ("preparing", {"pending": 1}, {}, ("preparing", "")),
    ],
)
def test_advance_each_situation_leads_where_it_should(before, spec, columns, after):
    reason = {"pause_reason": "operator"} if before == "pausing" else {}
    job = make_job(status=JobStatus(before), shards=[ShardSpec(**spec)], **(reason | columns))
    version = job.version
    moved = advance_jobs()
    assert status(job) == after
    assert moved == int(after[0] != before)
    assert job.version == version + moved
    events = Event.objects.filter(job=job)
    assert [e.kind for e in events] == [f"job.{after[0]}"] * moved
    assert_sound()
    assert advance_jobs() == 0, "at rest now"


@pytest.mark.parametrize("target", ["completed", "cancelled", "terminated"])
def test_advance_to_an_end_stamps_the_time(target):
    source = {"completed": "running", "cancelled": "cancelling", "terminated": "terminating"}
    job = make_job(status=JobStatus(source[target]), shards=[ShardSpec(confirmed=1)])
    advance_jobs()
    job.refresh_from_db()
    assert (job.status, job.finished_at is not None) == (target, True)


@pytest.mark.parametrize("target", ["paused", "verifying"])
def test_advance_to_a_rest_that_is_no_end_stamps_none(target):
    spec = {"paused": {"pending": 1, "confirmed": 1}, "verifying": {"accepted": 1}}[target]
    job = make_job(shards=[ShardSpec(**spec)], budget_limit=1)
    advance_jobs()
    job.refresh_from_db()
    assert (job.status, job.finished_at) == (target, None)


def test_advance_cancelling_job_abandons_all_that_is_left_in_bounded_steps(monkeypatch):
    monkeypatch.setattr(advance, "ABANDON_CHUNK", 7)
    job = make_job(
        status=JobStatus.CANCELLING,
        shards=[
            ShardSpec(pending=40, confirmed=2),
            ShardSpec(pending=14, failed=3, status="paused", reason="operator"),
            ShardSpec(pending=1),
            ShardSpec(confirmed=2),
        ],
    )
    for _ in range(50):
        advance_jobs()
        if status(job)[0] == "cancelled":
            break
    assert status(job) == ("cancelled", "")
    assert Item.objects.filter(job_id=job.pk, state="abandoned").count() == 55
    shards = Shard.objects.filter(job=job).order_by("ordinal")
    assert [s.status for s in shards] == ["cancelled", "cancelled", "cancelled", "completed"]
    assert [s.reason for s in shards] == [""] * 4
    assert_sound()


def test_advance_huge_cancelling_job_stays_bounded_per_pass(monkeypatch):
    """A pass must not hold a lane's end up: what is left is abandoned by the next passes."""
    monkeypatch.setattr(advance, "ABANDON_CHUNK", 10)
    monkeypatch.setattr(advance, "ABANDON_STEPS", 3)
    job = make_job(status=JobStatus.CANCELLING, shards=[ShardSpec(pending=100)])
    advance_jobs()
    assert Item.objects.filter(job_id=job.pk, state="abandoned").count() == 30
    for _ in range(4):
        advance_jobs()
    assert status(job) == ("cancelled", "")


def test_advance_many_cancelling_jobs_stay_bounded_per_pass_together(monkeypatch):
    monkeypatch.setattr(advance, "ABANDON_CHUNK", 10)
    monkeypatch.setattr(advance, "ABANDON_STEPS", 3)
    jobs = [make_job(status=JobStatus.CANCELLING, shards=[ShardSpec(pending=20)]) for _ in range(4)]
    advance_jobs()
    assert Item.objects.filter(state="abandoned").count() == 30
    for _ in range(2):
        advance_jobs()
    assert [status(job) for job in jobs] == [("cancelled", "")] * 4


def test_advance_cancelling_waits_for_what_is_in_flight_and_settles_both_ways():
    lane = make_lane()
    job = owned_job(lane, ShardSpec(pending=3), ShardSpec(pending=3), ShardSpec(pending=2))
    claim(lane=lane.pk, items=[i.pk for i in items_of(job) if i.seq == 1])
    sql("update batches_job set status = 'cancelling'")
    advance_jobs()
    assert status(job)[0] == "cancelling"
    assert Item.objects.filter(state="abandoned").count() == 5
    first, second, third = items_of(job, "submitted")
    settle_all(answer(first, "confirmed"), answer(second, "retry"), answer(third, "doubt"))
    advance_jobs()
    assert status(job)[0] == "cancelled"
    states = sorted(Item.objects.values_list("state", flat=True))
    assert states == ["abandoned"] * 6 + ["confirmed", "submitted"]
    assert_sound()


def test_advance_pausing_rests_only_when_the_last_answer_is_in():
    lane = make_lane()
    job = owned_job(lane, ShardSpec(pending=2), ShardSpec(pending=2))
    claim(lane=lane.pk, items=[i.pk for i in items_of(job) if i.seq == 1])
    sql("update batches_job set status = 'pausing', pause_reason = 'operator'")
    first, second = items_of(job, "submitted")
    settle_all(answer(first, "confirmed"))
    advance_jobs()
    assert status(job) == ("pausing", "operator")
    settle_all(answer(second, "retry"))
    advance_jobs()
    assert status(job) == ("paused", "operator")


def test_advance_pausing_with_a_dead_lane_rests_after_the_rescue():
    job = make_job(
        status=JobStatus.PAUSING,
        pause_reason="operator",
        shards=[ShardSpec(inflight=2, pending=2)],
        lane=make_lane(alive=False),
    )
    advance_jobs()
    assert status(job)[0] == "pausing"
    rescue_lost_calls()
    advance_jobs()
    assert status(job) == ("paused", "operator")


def test_advance_budget_pause_waits_for_answers_that_may_return_a_send():
    lane = make_lane()
    job = owned_job(lane, ShardSpec(pending=3), ShardSpec(pending=3), budget_limit=2)
    claim(lane=lane.pk, items=[i.pk for i in items_of(job) if i.seq == 1])
    advance_jobs()
    assert status(job)[0] == "running"
    first, second = items_of(job, "submitted")
    settle_all(answer(first, "confirmed"), answer(second, "failed"))
    advance_jobs()
    assert status(job)[0] == "running", "one send is left again"
    sql("update batches_account set gate_at = null")
    claim(lane=lane.pk, items=[items_of(job, "pending")[0].pk])
    settle_all(answer(items_of(job, "submitted")[0], "confirmed"))
    advance_jobs()
    assert status(job) == ("paused", PauseReason.BUDGET)


def test_advance_verifying_job_runs_again_after_a_late_refusal_and_completes_after_confirmation():
    lane = make_lane()
    job = owned_job(lane, ShardSpec(in_doubt=1, accepted=1, confirmed=1))
    advance_jobs()
    assert status(job)[0] == "verifying"
    doubt = Item.objects.get(in_doubt_at__isnull=False)
    settle_all(answer(doubt, "retry_uncounted"))
    advance_jobs()
    assert status(job)[0] == "running"
    claim(lane=lane.pk, items=[doubt.pk])
    doubt.refresh_from_db()
    settle_all(answer(doubt, "confirmed"))
    advance_jobs()
    assert status(job)[0] == "verifying"
    sql("update batches_item set state = 'confirmed', settled_at = now() where state = 'submitted'")
    sql("update batches_shard set submitted = 0, confirmed = total")
    advance_jobs()
    assert status(job)[0] == "completed"


def test_advance_named_jobs_only_touches_those():
    named, other = (make_job(shards=[ShardSpec(confirmed=1)]) for _ in range(2))
    assert advance_jobs([named.pk]) == 1
    assert (status(named)[0], status(other)[0]) == ("completed", "running")
    assert advance_jobs([]) == 0


def test_advance_that_loses_a_race_with_a_verb_leaves_the_job_to_it():
    """Between the look and the lock a person cancelled: the move is judged again under the lock."""
    job = make_job(shards=[ShardSpec(confirmed=1)])
    original = advance.next_move
    looked = []

    def look_then_cancel(tally, **more):
        move = original(tally, **more)
        if not looked:
            looked.append(move)
            with plain_connection(autocommit=True) as verb:
                verb.execute("update batches_job set status = 'cancelling'")
        return move

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(advance, "next_move", look_then_cancel)
        advance_jobs()
    assert looked[0][0] == "completed"
    assert status(job)[0] == "cancelled"


def test_advance_job_that_fails_does_not_keep_the_others(caplog):
    """A lock that cannot be had costs this job this pass."""
    stuck, other = (make_job(shards=[ShardSpec(confirmed=1)]) for _ in range(2))
    with plain_connection() as holder:
        holder.execute("select 1 from batches_job where id = %s for update", [stuck.pk])
        sql("set lock_timeout = '50ms'")
        try:
            advance_jobs()
        finally:
            sql("reset lock_timeout")
    assert (status(stuck)[0], status(other)[0]) == ("running", "completed")
    assert "not advanced this time" in caplog.text


@pytest.mark.parametrize("error", [ValueError("odd"), DataError("out of range")])
def test_advance_job_that_cannot_be_judged_does_not_keep_the_others(error, monkeypatch, caplog):
    poisoned, other = (make_job(shards=[ShardSpec(confirmed=1)]) for _ in range(2))
    original = advance._tally

    def tally(row):
        if row["id"] == poisoned.pk:
            raise error
        return original(row)

    monkeypatch.setattr(advance, "_tally", tally)
    assert advance_jobs() == 1
    assert (status(poisoned)[0], status(other)[0]) == ("running", "completed")
    assert f"job {poisoned.pk} cannot be advanced" in caplog.text
