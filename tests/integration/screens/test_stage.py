"""Passing a checkpoint: the page shows what the last stage did, and where the next stop is."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from batches.models import Event, Item, Job, Shard
from batches.services import jobs as services
from batches.store.advance import advance_jobs
from tests.factories import ShardSpec, items_of, make_job

from .pages import text_of

pytestmark = pytest.mark.django_db


def _job(**columns: Any) -> Job:
    """A running job that has just reached its first checkpoint, 4 sends."""
    defaults: dict[str, Any] = {"stages": [4, 8, 12], "budget_used": 4}
    return make_job(
        shards=[
            ShardSpec(pending=5, confirmed=2, failed=1, in_doubt=1, category="other"),
            ShardSpec(pending=1, failed=1, category="rate_limited"),
        ],
        **(defaults | columns),
    )


def _asked(client: Client, job: Job) -> Any:
    return client.get(reverse("admin:job_stage", args=[job.pk]))


def _numbers(response: Any) -> dict[str, tuple[int | None, int]]:
    return {row.label: (row.here, row.so_far) for row in response.context["stage"].rows}


def _settle(job: Job, *states: str) -> None:
    """The next pending items of the first shard end so, without a lane."""
    shard = Shard.objects.get(job=job, ordinal=1)
    for item, state in zip(items_of(job, "pending"), states, strict=False):
        kind = "content_invalid" if state == "failed" else None
        Item.objects.filter(pk=item.pk).update(state=state, category=kind)
        setattr(shard, state, getattr(shard, state) + 1)
        shard.pending -= 1
    shard.save()
    Job.objects.filter(pk=job.pk).update(budget_used=job.budget_used + len(states))


def test_checkpoint_reached_notes_what_it_found() -> None:
    job = _job()
    advance_jobs([job.pk])
    event = Event.objects.get(job=job, kind="job.paused")
    assert event.data["tally"] == {
        "passed": 0,
        "confirmed": 2,
        "failed": 2,
        "in_doubt": 1,
        "categories": {"other": 1, "rate_limited": 1},
    }


def test_other_pauses_note_nothing() -> None:
    job = _job(stages=[], budget_limit=4)
    advance_jobs([job.pk])
    assert "tally" not in Event.objects.get(job=job, kind="job.paused").data


def test_first_checkpoint_shows_confirmed_failed_by_category_and_in_doubt(client: Client) -> None:
    job = _job()
    advance_jobs([job.pk])
    asked = _asked(client, job)
    assert _numbers(asked) == {
        "已确认": (2, 2), "失败": (2, 2), "其他拒绝": (1, 1), "触发限流": (1, 1), "待核实": (1, 1),
    }  # fmt: skip
    assert "其中：触发限流 1 1" in text_of(asked)
    assert "累计到 8 条时再次停下" in text_of(asked)


def test_second_checkpoint_shows_its_own_stage_beside_the_sum(client: Client) -> None:
    job = _job()
    advance_jobs([job.pk])
    services.confirm_stage(job_id=job.pk, actor=None)
    _settle(job, "confirmed", "confirmed", "confirmed", "failed")
    advance_jobs([job.pk])
    job.refresh_from_db()
    assert (job.status, job.pause_reason) == ("paused", "stage")
    asked = _asked(client, job)
    assert _numbers(asked) == {
        "已确认": (3, 5), "失败": (1, 3), "其他拒绝": (0, 1), "触发限流": (0, 1),
        "内容不合规": (1, 1), "待核实": (0, 1),
    }  # fmt: skip
    assert "已确认 3 5" in text_of(asked)
    assert "累计到 12 条时再次停下" in text_of(asked)


def test_failures_retried_since_the_last_checkpoint_are_taken_back(client: Client) -> None:
    job = _job()
    advance_jobs([job.pk])
    services.retry_failed(job_id=job.pk, actor=None, category="rate_limited")
    services.confirm_stage(job_id=job.pk, actor=None)
    _settle(job, *["confirmed"] * 4)
    advance_jobs([job.pk])
    asked = _asked(client, job)
    assert _numbers(asked)["触发限流"] == (-1, 0)
    assert "此后已重试" in text_of(asked)


def test_stop_at_the_same_checkpoint_again_is_compared_with_the_one_before(client: Client) -> None:
    job = _job()
    advance_jobs([job.pk])
    services.terminate_job(job_id=job.pk, actor=None, reason="看一下")
    advance_jobs([job.pk])
    Item.objects.filter(job_id=job.pk, in_doubt_at__isnull=False).update(
        in_doubt_at=None, state="confirmed"
    )
    Shard.objects.filter(job=job, ordinal=1).update(in_doubt=0, submitted=0, confirmed=3)
    services.resume_job(job_id=job.pk, actor=None)
    advance_jobs([job.pk])
    assert Event.objects.filter(job=job, kind="job.paused", data__reason="stage").count() == 2
    assert _numbers(_asked(client, job))["已确认"] == (3, 3)


def test_checkpoint_that_nobody_noted_shows_the_sums_alone(client: Client) -> None:
    job = _job(status="paused", pause_reason="stage", stages_passed=1, stages=[2, 4, 12])
    asked = _asked(client, job)
    assert _numbers(asked)["已确认"] == (None, 2)
    assert "只能显示累计" in text_of(asked)
    assert "本阶段" not in text_of(asked)


def test_checkpoint_that_would_be_jumped_over_is_not_the_one_announced(client: Client) -> None:
    job = _job(status="paused", pause_reason="stage", stages=[2, 3, 4, 9])
    asked = _asked(client, job)
    assert asked.context["stage"].coming == 9
    passed = services.confirm_stage(job_id=job.pk, actor=None).stages_passed
    assert job.stages[passed] == 9


def test_last_checkpoint_says_that_the_rest_is_sent(client: Client) -> None:
    job = _job(status="paused", pause_reason="stage", stages=[4])
    assert "发送剩余的 6 条，后面没有检查点" in text_of(_asked(client, job))
