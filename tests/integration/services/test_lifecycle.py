"""Start, pause, resume, cancel, terminate."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import F
from django.utils import timezone

from batches.domain.errors import (
    InvalidInputError,
    NotAllowedError,
    StaleVersionError,
    WrongStateError,
)
from batches.domain.states import JobStatus, PauseReason
from batches.models import Event, Job
from batches.services import jobs
from batches.services.reconcile import mark_items
from tests.factories import ShardSpec, items_of, make_account, make_job, make_user

pytestmark = pytest.mark.django_db
PAUSED = {"status": JobStatus.PAUSED, "pause_reason": PauseReason.OPERATOR}


def test_confirm_awaiting_starts_and_wakes_lanes(
    woken: list[bool], django_capture_on_commit_callbacks
) -> None:
    job = make_job(status=JobStatus.AWAITING)
    with django_capture_on_commit_callbacks(execute=True):
        fresh = jobs.confirm_job(job_id=job.pk, actor=None)
    assert fresh.status == JobStatus.RUNNING
    assert fresh.started_at is not None
    assert woken == [True]


def test_pause_nothing_in_flight_is_paused_at_once() -> None:
    job = make_job(shards=[ShardSpec(pending=2, confirmed=1, in_doubt=1)])
    fresh = jobs.pause_job(job_id=job.pk, actor=None, reason="看一下")
    assert (fresh.status, fresh.pause_reason) == ("paused", "operator")
    event = Event.objects.get(job=job)
    assert (event.kind, event.reason) == ("job.paused", "看一下")
    assert event.data["before"] == {"status": "running", "pause_reason": ""}
    assert event.data["after"] == {"status": "paused"}


def test_pause_with_calls_in_flight_waits_for_them() -> None:
    job = make_job(shards=[ShardSpec(pending=2, inflight=3)])
    fresh = jobs.pause_job(job_id=job.pk, actor=None)
    assert (fresh.status, fresh.pause_reason) == ("pausing", "operator")
    assert Event.objects.get(job=job).data["inflight"] == 3


def test_pause_twice_is_refused_with_what_is_possible() -> None:
    job = make_job(**PAUSED)
    with pytest.raises(WrongStateError) as refused:
        jobs.pause_job(job_id=job.pk, actor=None)
    assert "「已暂停」（人工暂停）" in str(refused.value)
    assert "继续、" in str(refused.value)
    assert "取消" in str(refused.value)


def test_verb_on_a_stale_page_names_the_state_and_who_made_it() -> None:
    job = make_job()
    actor = make_user("operate_job", first_name="王芳")
    jobs.pause_job(job_id=job.pk, actor=actor)
    with pytest.raises(StaleVersionError) as refused:
        jobs.resume_job(job_id=job.pk, actor=None, expected_version=job.version)
    message = str(refused.value)
    assert message.startswith("状态已被他人更改")
    assert "「已暂停」" in message
    assert "王芳" in message
    assert Job.objects.get(pk=job.pk).status == JobStatus.PAUSED


def test_verb_on_a_page_made_stale_by_the_same_person_says_so() -> None:
    job = make_job()
    actor = make_user("operate_job", first_name="王芳")
    jobs.pause_job(job_id=job.pk, actor=actor)
    with pytest.raises(StaleVersionError, match="您自己") as refused:
        jobs.resume_job(job_id=job.pk, actor=actor, expected_version=job.version)
    assert refused.value.own
    assert "他人" not in str(refused.value)


def test_verb_with_the_version_of_the_page_works() -> None:
    job = make_job()
    paused = jobs.pause_job(job_id=job.pk, actor=None, expected_version=job.version)
    fresh = jobs.resume_job(job_id=job.pk, actor=None, expected_version=paused.version)
    assert (fresh.status, fresh.pause_reason) == ("running", "")


def test_stale_page_on_a_job_without_events_still_names_the_state() -> None:
    job = make_job()
    with pytest.raises(StaleVersionError, match="运行中"):
        jobs.pause_job(job_id=job.pk, actor=None, expected_version=99)


def test_resume_while_pausing_goes_on() -> None:
    job = make_job(
        status=JobStatus.PAUSING, pause_reason="operator", shards=[ShardSpec(pending=1, inflight=1)]
    )
    assert jobs.resume_job(job_id=job.pk, actor=None).status == JobStatus.RUNNING


def test_resume_used_up_budget_is_refused_until_it_is_raised() -> None:
    job = make_job(
        status=JobStatus.PAUSED,
        pause_reason=PauseReason.BUDGET,
        budget_limit=2,
        shards=[ShardSpec(pending=4, confirmed=2)],
    )
    with pytest.raises(WrongStateError, match=r"预算 2 条已用完，还有 4 条未发"):
        jobs.resume_job(job_id=job.pk, actor=None)
    jobs.raise_budget(job_id=job.pk, actor=None, to=6, reason="结果正常")
    assert jobs.resume_job(job_id=job.pk, actor=None).status == JobStatus.RUNNING


def test_resume_at_a_checkpoint_passes_it() -> None:
    job = make_job(
        status=JobStatus.PAUSED,
        pause_reason=PauseReason.STAGE,
        stages=[2, 4],
        shards=[ShardSpec(pending=4, confirmed=2)],
    )
    fresh = jobs.resume_job(job_id=job.pk, actor=None)
    assert (fresh.status, fresh.stages_passed) == ("running", 1)
    assert Event.objects.get(job=job).data["stages_passed"] == 1


def test_resume_at_a_checkpoint_needs_the_approver() -> None:
    job = make_job(
        status=JobStatus.PAUSED, pause_reason=PauseReason.STAGE, stages=[2], budget_used=2
    )
    with pytest.raises(NotAllowedError, match="确认放量"):
        jobs.resume_job(job_id=job.pk, actor=make_user("operate_job"))
    assert Job.objects.get(pk=job.pk).stages_passed == 0
    actor = make_user("operate_job", "approve_job")
    assert jobs.resume_job(job_id=job.pk, actor=actor).stages_passed == 1


def test_resume_after_the_breaker_takes_tripped_shards_up_but_not_a_persons() -> None:
    job = make_job(
        status=JobStatus.PAUSED,
        pause_reason=PauseReason.BREAKER,
        shards=[
            ShardSpec(pending=1, status="paused", reason="breaker"),
            ShardSpec(pending=1, status="paused", reason="operator"),
        ],
    )
    job.shards.update(bad_streak=7)
    jobs.resume_job(job_id=job.pk, actor=None)
    first, second = job.shards.order_by("ordinal")
    assert (first.status, first.reason, first.bad_streak) == ("running", "", 7)
    assert (second.status, second.reason) == ("paused", "operator")


def test_resume_of_a_running_job_takes_up_what_the_system_stopped() -> None:
    job = make_job(
        shards=[
            ShardSpec(pending=1),
            ShardSpec(pending=1, status="paused", reason="credential"),
            ShardSpec(pending=1, status="paused", reason="operator"),
        ]
    )
    fresh = jobs.resume_job(job_id=job.pk, actor=None)
    assert (fresh.status, fresh.version) == ("running", job.version + 1)
    statuses = job.shards.order_by("ordinal").values_list("status", flat=True)
    assert list(statuses) == ["running", "running", "paused"]
    assert Event.objects.get(job=job, kind="job.resumed").data == {"shards": [2]}
    with pytest.raises(WrongStateError, match="运行中"):
        jobs.resume_job(job_id=job.pk, actor=None)


def test_resume_after_a_lost_login_trusts_the_account_again() -> None:
    account = make_account(health="credential", health_note="40014")
    other = make_account(health="credential")
    job = make_job(
        shards=[
            ShardSpec(pending=1, status="paused", reason="credential", account=account),
            ShardSpec(pending=1, status="paused", reason="credential", account=other),
        ],
    )
    jobs.resume_shard(job_id=job.pk, ordinal=1, actor=None, reason="已重新登录")
    account.refresh_from_db()
    other.refresh_from_db()
    assert (account.health, account.health_note, other.health) == ("ok", "", "credential")
    event = Event.objects.get(kind="account.credential_restored")
    assert (event.account_id, event.reason) == (account.pk, "已重新登录")
    Job.objects.filter(pk=job.pk).update(status="paused", pause_reason="credential")
    jobs.resume_job(job_id=job.pk, actor=None)
    other.refresh_from_db()
    assert other.health == "ok"
    assert set(job.shards.values_list("status", flat=True)) == {"running"}


def test_resume_after_a_missed_start_does_not_ask_again(
    django_capture_on_commit_callbacks,
) -> None:
    job = make_job(
        status=JobStatus.PAUSED,
        pause_reason=PauseReason.MISSED_START,
        start_at=timezone.now() - timedelta(hours=5),
    )
    with django_capture_on_commit_callbacks(execute=True):
        jobs.resume_job(job_id=job.pk, actor=None)
    fresh = Job.objects.get(pk=job.pk)
    assert (fresh.status, fresh.start_at) == ("running", None)


def test_resume_before_the_set_start_keeps_it() -> None:
    start = timezone.now() + timedelta(hours=5)
    job = make_job(start_at=start, **PAUSED)
    assert jobs.resume_job(job_id=job.pk, actor=None).start_at == start


def test_resume_terminated_is_refused_until_doubts_are_reconciled() -> None:
    job = make_job(status=JobStatus.TERMINATED, shards=[ShardSpec(pending=2, in_doubt=2)])
    with pytest.raises(WrongStateError, match="还有 2 条存疑"):
        jobs.resume_job(job_id=job.pk, actor=None)
    doubts = [item.pk for item in items_of(job, "submitted")]
    mark_items(job_id=job.pk, item_ids=doubts[:1], delivered=True, actor=None, reason="问过客户")
    with pytest.raises(WrongStateError, match="还有 1 条存疑"):
        jobs.resume_job(job_id=job.pk, actor=None)
    mark_items(job_id=job.pk, item_ids=doubts[1:], delivered=False, actor=None, reason="没收到")
    fresh = jobs.resume_job(job_id=job.pk, actor=None)
    assert (fresh.status, fresh.finished_at) == ("running", None)


@pytest.mark.parametrize("status", [JobStatus.AWAITING, JobStatus.PREPARING])
def test_cancel_before_the_start_gives_the_submission_back(status: JobStatus) -> None:
    job = make_job(status=status, submission_key="k", shards=[])
    fresh = jobs.cancel_job(job_id=job.pk, actor=None, reason="传错文件")
    assert fresh.submission_key is None
    done = JobStatus.CANCELLED if status is JobStatus.PREPARING else JobStatus.CANCELLING
    assert fresh.status == done
    assert (fresh.finished_at is not None) is (status is JobStatus.PREPARING)


def test_cancel_after_the_start_keeps_the_submission() -> None:
    job = make_job(submission_key="k")
    assert jobs.cancel_job(job_id=job.pk, actor=None, reason="不发了").submission_key == "k"


def test_cancel_abandons_what_is_left_and_keeps_what_is_in_flight(
    django_capture_on_commit_callbacks,
) -> None:
    job = make_job(shards=[ShardSpec(pending=3, inflight=1, confirmed=1), ShardSpec(pending=2)])
    with django_capture_on_commit_callbacks(execute=True):
        jobs.cancel_job(job_id=job.pk, actor=None, reason="不发了")
    states = sorted(item.state for item in items_of(job))
    assert states == ["abandoned"] * 5 + ["confirmed", "submitted"]
    assert Job.objects.get(pk=job.pk).status == JobStatus.CANCELLING


def test_cancel_with_nothing_in_flight_ends_at_once(django_capture_on_commit_callbacks) -> None:
    job = make_job(shards=[ShardSpec(pending=3)])
    with django_capture_on_commit_callbacks(execute=True):
        jobs.cancel_job(job_id=job.pk, actor=None, reason="不发了")
    fresh = Job.objects.get(pk=job.pk)
    assert (fresh.status, fresh.finished_at is not None) == ("cancelled", True)
    assert job.shards.get().status == "cancelled"


def test_terminate_with_a_mistyped_name_is_refused() -> None:
    job = make_job(name="双十一回访")
    with pytest.raises(InvalidInputError, match="双十一回访"):
        jobs.terminate_job(job_id=job.pk, actor=None, reason="失控", confirm_name="双十一")
    assert Job.objects.get(pk=job.pk).status == JobStatus.RUNNING
    fresh = jobs.terminate_job(
        job_id=job.pk, actor=None, reason="失控", confirm_name=" 双十一回访 "
    )
    assert fresh.status == JobStatus.TERMINATING


def test_verb_stands_when_the_queue_is_away(
    monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks
) -> None:
    def away() -> None:
        raise ConnectionError("queue is away")

    monkeypatch.setattr("batches.services.acting.wake_lanes", away)
    job = make_job(**PAUSED)
    with django_capture_on_commit_callbacks(execute=True):
        assert jobs.resume_job(job_id=job.pk, actor=None).status == JobStatus.RUNNING
    assert Job.objects.get(pk=job.pk).status == JobStatus.RUNNING


def test_verb_on_a_row_changed_behind_its_back_records_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The guard of the update itself, beside the check before it."""
    job = make_job()

    def moved_meanwhile(job_id: int) -> int:
        Job.objects.filter(pk=job_id).update(status="cancelled", version=F("version") + 1)
        return 0

    monkeypatch.setattr("batches.store.jobs.in_flight", moved_meanwhile)
    with pytest.raises(WrongStateError):
        jobs.pause_job(job_id=job.pk, actor=None)
    assert not Event.objects.filter(job=job).exists()


def test_resume_after_a_terminate_tries_one_item_of_each_shard() -> None:
    """Whatever it stood for before that: a breaker's stop that was then terminated, say."""
    job = make_job(status=JobStatus.TERMINATED, shards=[ShardSpec(pending=2), ShardSpec(pending=2)])
    jobs.resume_job(job_id=job.pk, actor=None)
    assert not job.shards.filter(probe_from=None).exists()


def test_resume_after_a_persons_pause_tries_nothing_first() -> None:
    job = make_job(shards=[ShardSpec(pending=2)])
    jobs.pause_job(job_id=job.pk, actor=None)
    jobs.resume_job(job_id=job.pk, actor=None)
    assert job.shards.filter(probe_from=None).exists()
