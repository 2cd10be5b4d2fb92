"""What a page promises is what will happen: with a set start, a short budget, a job that stands."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from batches.domain.errors import InvalidInputError
from batches.models import Job, JobMinute
from batches.services.schedule import aware
from tests.factories import ShardSpec, make_job, make_lane

from .pages import text_of

pytestmark = pytest.mark.django_db


def _page(client: Client, job: Job) -> str:
    return text_of(client.get(reverse("admin:job", args=[job.pk])))


def _act(client: Client, name: str, job: Job, **data: Any) -> str:
    post = {"version": job.version, **data}
    return text_of(client.post(reverse(f"admin:{name}", args=[job.pk]), post, follow=True))


# --- a set start ---


def test_confirming_a_job_with_a_set_start_says_when_it_begins(client: Client) -> None:
    start = timezone.now() + timedelta(hours=5)
    job = make_job(status="awaiting", start_at=start)
    text = _act(client, "job_confirm", job)
    when = f"{timezone.localtime(start):%Y-%m-%d %H:%M}"
    assert f"已确认，共 3 条，{when} 开始发送。" in text
    assert "已启动" not in text


def test_job_before_its_start_counts_from_there_and_the_overview_says_why(client: Client) -> None:
    make_lane()
    job = make_job(start_at=timezone.now() + timedelta(hours=5))
    assert "预计剩余 开始发送后" in _page(client, job)
    assert "才开始发送。" in text_of(client.get(reverse("admin:index")))
    Job.objects.filter(pk=job.pk).update(start_at=None)
    assert "开始发送后" not in _page(client, job)
    assert "才开始发送。" not in text_of(client.get(reverse("admin:index")))


@pytest.mark.parametrize("year", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:00-12:00"])
def test_start_that_no_other_clock_can_show_is_refused(year: str) -> None:
    with pytest.raises(InvalidInputError, match="1971 到 2999"):
        aware(datetime.fromisoformat(year))


# --- a budget that is short ---


def test_preview_of_a_job_beyond_its_budget_says_what_will_wait(client: Client) -> None:
    job = make_job(status="awaiting", shards=[ShardSpec(pending=30)], budget_limit=10)
    text = _page(client, job)
    assert "最多 10 条，用完自动暂停 ；其余 20 条要等提高预算" in text
    Job.objects.filter(pk=job.pk).update(budget_limit=30)
    assert "要等提高预算" not in _page(client, job)


@pytest.mark.parametrize(
    ("stages", "budget", "said"),
    [
        ([4], 6, "再发 2 条就用完"),
        ([4, 8], 6, "再发 2 条就用完"),
        ([4, 8], 8, None),
        ([4], 30, None),
    ],
)
def test_checkpoint_before_a_short_budget_says_where_it_stops_first(
    client: Client, stages: list[int], budget: int, said: str | None
) -> None:
    job = make_job(
        status="paused",
        pause_reason="stage",
        stages=stages,
        budget_limit=budget,
        shards=[ShardSpec(pending=20, confirmed=4)],
    )
    text = text_of(client.get(reverse("admin:job_stage", args=[job.pk])))
    assert (said in text) if said else ("就用完" not in text)


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("budget", "提高预算并继续后才会发送"),
        ("stage", "确认放量后才会发送"),
        ("operator", "点「继续」后才会发送"),
    ],
)
def test_retry_in_a_job_that_stands_names_the_button_it_has(
    client: Client, reason: str, said: str
) -> None:
    job = make_job(
        status="paused",
        pause_reason=reason,
        budget_limit=2,
        stages=[2],
        shards=[ShardSpec(pending=1, confirmed=1, failed=1, category="other")],
    )
    assert said in _act(client, "job_retry", job, reason="名单已改")


# --- what was sent a moment ago ---


def test_job_that_just_stopped_keeps_its_failure_share_and_has_no_rate(client: Client) -> None:
    """A person is to judge by it whether to go on."""
    job = make_job(
        status="paused",
        pause_reason="stage",
        stages=[4],
        shards=[ShardSpec(pending=1, confirmed=3)],
    )
    minute = timezone.now().replace(second=0, microsecond=0)
    JobMinute.objects.create(job=job, minute=minute, sent=4, confirmed=3, failed=1)
    text = _page(client, job)
    assert "近 5 分钟失败率 25" in text
    assert re.search(r"实际速率（上限 \d+） —", text)


def test_rate_of_accounts_that_are_done_is_not_set_against_the_limit_of_the_rest(
    client: Client,
) -> None:
    job = make_job(started_at=timezone.now() - timedelta(minutes=5))
    minute = timezone.now().replace(second=0, microsecond=0)
    JobMinute.objects.create(job=job, minute=minute, sent=6000, confirmed=6000)
    text = _page(client, job)
    assert "实际速率（近几分钟平均）" in text
    assert "（上限" not in text


def test_terminated_job_with_items_left_stays_in_sight_for_a_while(client: Client) -> None:
    job = make_job(status="terminated", shards=[ShardSpec(pending=3, confirmed=1)])
    assert job.name in text_of(client.get(reverse("admin:index")))
    Job.objects.filter(pk=job.pk).update(finished_at=timezone.now() - timedelta(days=4))
    assert job.name not in text_of(client.get(reverse("admin:index")))
