"""Hours, start, breaker and priority, set while a job runs; and what PostgreSQL itself refuses."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, time, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from batches.domain.errors import InvalidInputError, StaleVersionError, WrongStateError
from batches.domain.states import JobStatus, PauseReason
from batches.models import Event, Job
from batches.selectors.why import why_not_moving
from batches.services import jobs
from batches.store.advance import advance_jobs
from tests.factories import ShardSpec, make_job, make_lane

pytestmark = pytest.mark.django_db


def soon(**delta: float) -> datetime:
    return timezone.now() + timedelta(**delta)


def columns(job: Job, *names: str) -> dict[str, Any]:
    return Job.objects.filter(pk=job.pk).values(*names).get()


# --- hours ---


def test_set_hours_keeps_before_and_after() -> None:
    job = make_job(window_from=time(9), window_to=time(18))
    fresh = jobs.set_hours(
        job_id=job.pk, actor=None, window_from=time(22), window_to=time(6, 30), reason="夜间"
    )
    assert (fresh.window_from, fresh.window_to) == (time(22), time(6, 30))
    assert fresh.version == job.version + 1
    event = Event.objects.get(job=job)
    assert (event.kind, event.reason) == ("job.hours_set", "夜间")
    assert event.data == {
        "before": {"window_from": "09:00:00", "window_to": "18:00:00"},
        "after": {"window_from": "22:00:00", "window_to": "06:30:00"},
    }


def test_set_hours_to_none_allows_all_day() -> None:
    job = make_job(window_from=time(9), window_to=time(18))
    fresh = jobs.set_hours(job_id=job.pk, actor=None, window_from=None, window_to=None)
    assert (fresh.window_from, fresh.window_to) == (None, None)


@pytest.mark.parametrize(
    ("opens", "closes", "words"),
    [(time(9), None, "要么都填"), (None, time(9), "要么都填"), (time(9), time(9), "不能相同")],
)
def test_set_hours_that_cannot_be_are_refused(
    opens: time | None, closes: time | None, words: str
) -> None:
    job = make_job()
    with pytest.raises(InvalidInputError, match=words):
        jobs.set_hours(job_id=job.pk, actor=None, window_from=opens, window_to=closes)
    assert not Event.objects.filter(job=job).exists()


# --- start ---


def test_set_start_before_anything_was_sent_moves_it() -> None:
    job = make_job(start_at=soon(hours=1), shards=[ShardSpec(pending=2)])
    later = soon(hours=3)
    fresh = jobs.set_start(job_id=job.pk, actor=None, start_at=later)
    assert (fresh.status, fresh.start_at) == ("running", later)
    data = Event.objects.get(job=job).data
    assert data["before"]["start_at"] == job.start_at.isoformat()
    assert data["after"]["start_at"] == later.isoformat()


def test_set_start_without_an_offset_is_local_time() -> None:
    job = make_job(status=JobStatus.AWAITING)
    local = timezone.localtime(soon(days=1)).replace(microsecond=0, tzinfo=None)
    fresh = jobs.set_start(job_id=job.pk, actor=None, start_at=local)
    assert fresh.start_at is not None
    assert timezone.localtime(fresh.start_at).replace(tzinfo=None) == local


def test_set_start_to_none_starts_at_once() -> None:
    job = make_job(start_at=soon(hours=1), shards=[ShardSpec(pending=2)])
    assert jobs.set_start(job_id=job.pk, actor=None, start_at=None).start_at is None


@pytest.mark.parametrize(
    ("away", "words"), [(-timedelta(minutes=2), "已经过去"), (timedelta(days=400), "核对年份")]
)
def test_set_start_that_cannot_be_meant_is_refused(away: timedelta, words: str) -> None:
    job = make_job(start_at=soon(hours=1))
    with pytest.raises(InvalidInputError, match=words):
        jobs.set_start(job_id=job.pk, actor=None, start_at=timezone.now() + away)
    assert columns(job, "start_at") == {"start_at": job.start_at}


@pytest.mark.parametrize(
    "spec",
    [
        ShardSpec(pending=1, confirmed=1),
        ShardSpec(pending=1, inflight=1),
        ShardSpec(pending=1, failed=1),
    ],
    ids=["confirmed", "in flight", "refused"],
)
def test_set_start_of_a_job_that_has_begun_is_refused(spec: ShardSpec) -> None:
    job = make_job(shards=[spec])
    with pytest.raises(WrongStateError, match="已经开始发送"):
        jobs.set_start(job_id=job.pk, actor=None, start_at=soon(hours=1))


def _missed(**more: Any) -> Job:
    job = make_job(start_at=soon(hours=-2), shards=[ShardSpec(pending=2)], **more)
    assert advance_jobs([job.pk]) == 1
    return Job.objects.get(pk=job.pk)


def test_missed_start_is_paused_and_named() -> None:
    job = _missed()
    assert (job.status, job.pause_reason) == ("paused", PauseReason.MISSED_START)
    why = why_not_moving(job)
    assert (why.code, why.level) == ("missed_start", "warn")
    assert "错过开始时间" in why.sentence


def test_resume_after_a_missed_start_starts_now_and_is_not_asked_again() -> None:
    job = _missed()
    fresh = jobs.resume_job(job_id=job.pk, actor=None)
    assert (fresh.status, fresh.pause_reason, fresh.start_at) == ("running", "", None)
    assert advance_jobs([job.pk]) == 0


def test_set_start_after_a_missed_one_waits_for_the_new_one() -> None:
    job = _missed()
    later = soon(hours=2)
    fresh = jobs.set_start(job_id=job.pk, actor=None, start_at=later)
    assert (fresh.status, fresh.pause_reason, fresh.start_at) == ("running", "", later)
    assert why_not_moving(fresh).code == "scheduled"


def test_set_start_of_a_job_that_a_person_paused_leaves_it_paused() -> None:
    job = make_job(status=JobStatus.PAUSED, pause_reason="operator", shards=[ShardSpec(pending=2)])
    assert jobs.set_start(job_id=job.pk, actor=None, start_at=soon(hours=2)).status == "paused"


def test_start_outside_the_hours_is_not_missed_until_they_have_opened() -> None:
    """Due two hours ago, at an hour that opened five minutes ago: nothing was missed."""
    here = timezone.localtime()
    job = make_job(
        start_at=here - timedelta(hours=2),
        window_from=(here - timedelta(minutes=5)).time(),
        window_to=(here + timedelta(hours=1)).time(),
        shards=[ShardSpec(pending=2)],
    )
    assert advance_jobs([job.pk]) == 0
    Job.objects.filter(pk=job.pk).update(window_from=(here - timedelta(minutes=30)).time())
    assert advance_jobs([job.pk]) == 1
    assert columns(job, "pause_reason") == {"pause_reason": "missed_start"}


# --- breaker and priority ---


def test_set_breaker_changes_what_is_given_and_keeps_the_rest() -> None:
    job = make_job()
    fresh = jobs.set_breaker(job_id=job.pk, actor=None, streak=3, ratio=0.2)
    assert (fresh.breaker_streak, fresh.breaker_ratio, fresh.breaker_window) == (3, 0.2, 200)
    data = Event.objects.get(job=job).data
    assert (data["before"]["streak"], data["after"]["streak"]) == (10, 3)
    assert data["after"]["window"] == 200


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "至少填写一项"),
        ({"streak": 0}, "分片连续失败上限"),
        ({"ratio": 1.5}, "作业失败率上限"),
        ({"window": 20}, "永远不会熔断"),
        ({"shard_share": 0.0}, "熔断分片占比上限"),
    ],
)
def test_set_breaker_that_makes_no_sense_is_refused(change: dict[str, Any], words: str) -> None:
    job = make_job()
    with pytest.raises(InvalidInputError) as refused:
        jobs.set_breaker(job_id=job.pk, actor=None, **change)
    assert words in str(refused.value)
    assert columns(job, "breaker_streak", "version") == {"breaker_streak": 10, "version": 0}


def test_set_priority_keeps_before_and_after() -> None:
    job = make_job(priority=2)
    assert jobs.set_priority(job_id=job.pk, actor=None, priority=-7).priority == -7
    assert Event.objects.get(job=job).data == {
        "before": {"priority": 2},
        "after": {"priority": -7},
    }
    with pytest.raises(InvalidInputError, match="优先级"):
        jobs.set_priority(job_id=job.pk, actor=None, priority=101)


@pytest.mark.parametrize(
    "act",
    [
        lambda **words: jobs.set_hours(window_from=None, window_to=None, **words),
        lambda **words: jobs.set_start(start_at=None, **words),
        lambda **words: jobs.set_breaker(streak=2, **words),
        lambda **words: jobs.set_priority(priority=1, **words),
    ],
    ids=["hours", "start", "breaker", "priority"],
)
def test_setting_of_a_job_that_somebody_changed_meanwhile_is_refused(
    act: Callable[..., Job],
) -> None:
    job = make_job(shards=[ShardSpec(pending=1)])
    jobs.pause_job(job_id=job.pk, actor=None)
    with pytest.raises(StaleVersionError):
        act(job_id=job.pk, actor=None, expected_version=job.version)


# --- the lane sees it ---


@pytest.mark.django_db(transaction=True)
def test_lane_view_follows_hours_start_breaker_and_priority() -> None:
    """What a lane reads every second: shards leave and come, thresholds and priority change."""
    import asyncio

    from batches.engine.state import LaneState, TurnOptions
    from batches.engine.viewing import refresh
    from batches.store.connections import connect

    lane = make_lane()
    job = make_job(shards=[ShardSpec(pending=2)])
    account = job.shards.get().account
    account.lane = lane
    account.save(update_fields=["lane"])
    state = LaneState(lane=lane.pk, options=TurnOptions(), should_stop=lambda: False)

    def look() -> LaneState:
        async def go() -> None:
            conn = await connect("test")
            try:
                await refresh(conn, state)
            finally:
                await conn.close()

        asyncio.run(go())
        return state

    assert list(look().jobs) == [job.pk]
    jobs.set_breaker(job_id=job.pk, actor=None, ratio=0.25, window=40, min_sample=4)
    jobs.set_priority(job_id=job.pk, actor=None, priority=9)
    plan = look().jobs[job.pk]
    assert (plan.priority, plan.breaker.ratio, plan.breaker.min_sample) == (9, 0.25, 4)
    here = timezone.localtime()
    closed = ((here + timedelta(hours=h)).time() for h in (1, 2))
    jobs.set_hours(job_id=job.pk, actor=None, window_from=next(closed), window_to=next(closed))
    assert look().shards == {}
    jobs.set_hours(job_id=job.pk, actor=None, window_from=None, window_to=None)
    assert len(look().shards) == 1
    jobs.set_start(job_id=job.pk, actor=None, start_at=soon(hours=1))
    assert look().shards == {}
    jobs.set_start(job_id=job.pk, actor=None, start_at=None)
    assert len(look().shards) == 1


# --- what PostgreSQL refuses, whoever writes it ---


@pytest.mark.parametrize(
    "change",
    [
        "rate_limit_per_min = 0",
        "budget_limit = 0",
        "budget_limit = 5, budget_used = 6",
        "stages = '{5,5}'",
        "stages = '{0,5}'",
        "stages = '{9,5}'",
        "call_size = 0",
        "call_size = 51",
        "max_attempts = 0",
        "max_attempts = 21",
        "priority = 101",
        "priority = -101",
        "window_from = '09:00'",
        "window_to = '09:00'",
        "window_from = '09:00', window_to = '09:00'",
        "breaker_streak = 0",
        "breaker_ratio = 0",
        "breaker_ratio = 1.5",
        "breaker_ratio = 'NaN'",
        "breaker_window = 0",
        "breaker_min_sample = 0",
        "breaker_min_sample = 60, breaker_window = 50",
        "breaker_shard_share = 0",
        "breaker_shard_share = 1.1",
        "pause_reason = 'budget'",
        "status = 'sleeping'",
    ],
)
def test_row_with_an_impossible_limit_is_refused_by_postgresql(change: str) -> None:
    job = make_job()
    with (
        pytest.raises(IntegrityError),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(f"update batches_job set {change} where id = %s", [job.pk])


def test_row_with_every_limit_set_is_taken() -> None:
    job = make_job(
        rate_limit_per_min=1,
        budget_limit=1,
        budget_used=0,
        stages=[1, 2],
        call_size=50,
        max_attempts=20,
        priority=-100,
        window_from=time(22),
        window_to=time(6),
        breaker_streak=1,
        breaker_ratio=1.0,
        breaker_window=1,
        breaker_min_sample=1,
        breaker_shard_share=1.0,
    )
    assert columns(job, "priority") == {"priority": -100}
