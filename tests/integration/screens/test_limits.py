"""Limits of a job: set in the form of a new one, changed on their own page."""

from __future__ import annotations

from collections.abc import Callable
from datetime import time, timedelta
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from batches.models import Event, Job
from tests.factories import ShardSpec, make_job

from .pages import faults_of, text_of

pytestmark = pytest.mark.django_db


def _set(client: Client, job: Job, **form: str) -> Any:
    address = reverse("admin:job_limits", args=[job.pk])
    return client.post(address, {"version": str(job.version)} | form)


def test_hours_are_changed_and_shown(client: Client) -> None:
    job = make_job()
    _set(client, job, set="hours", window_from="21:00", window_to="08:30")
    job.refresh_from_db()
    assert (job.window_from, job.window_to) == (time(21), time(8, 30))
    shown = text_of(client.get(reverse("admin:job", args=[job.pk])))
    assert "21:00–08:30" in shown
    assert "全天 → 21:00–08:30" in shown
    _set(client, job, set="hours", window_from="", window_to="")
    job.refresh_from_db()
    assert job.window_from is None


def test_start_is_meant_in_the_installations_time_zone(client: Client) -> None:
    job = make_job(status="awaiting", shards=[ShardSpec(pending=2)])
    tomorrow = timezone.localtime() + timedelta(days=1)
    _set(client, job, set="start", start_at=f"{tomorrow:%Y-%m-%dT%H:%M}")
    job.refresh_from_db()
    assert job.start_at is not None
    assert f"{timezone.localtime(job.start_at):%Y-%m-%d %H:%M}" == f"{tomorrow:%Y-%m-%d %H:%M}"
    page = client.get(reverse("admin:job_limits", args=[job.pk])).content.decode()
    assert f'value="{tomorrow:%Y-%m-%dT%H:%M}"' in page
    assert faults_of(page) == []


def test_priority_and_breaker_are_changed(client: Client) -> None:
    job = make_job()
    _set(client, job, set="priority", priority="-7")
    job.refresh_from_db()
    _set(client, job, set="breaker", breaker_streak="3", breaker_ratio="12.5%")
    job.refresh_from_db()
    assert (job.priority, job.breaker_streak, job.breaker_ratio) == (-7, 3, 0.125)
    # what was left empty stays
    assert job.breaker_window == 200
    assert Event.objects.filter(job=job).count() == 2


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"set": "hours", "window_from": "9点"}, "请填时刻"),
        ({"set": "hours", "window_from": "09:00"}, "要么都填"),
        ({"set": "start", "start_at": "明天"}, "请填日期和时间"),
        ({"set": "priority", "priority": "高"}, "请填整数"),
        ({"set": "priority", "priority": "101"}, "必须是 -100 到 100"),
        ({"set": "breaker"}, "请至少填写一项"),
        ({"set": "breaker", "breaker_ratio": "一半"}, "请填百分数"),
        ({"set": "breaker", "breaker_ratio": "0"}, "必须大于 0"),
        ({"set": "nothing"}, "没有这样的限制"),
    ],
)
def test_limit_that_cannot_be_is_refused_in_words(
    form: dict[str, str], words: str, client: Client
) -> None:
    job = make_job()
    response = _set(client, job, **form)
    assert response.status_code == 422
    assert words in text_of(response)
    assert Job.objects.get(pk=job.pk).version == job.version


def test_limit_from_a_stale_page_is_a_conflict(client: Client) -> None:
    job = make_job()
    Job.objects.filter(pk=job.pk).update(version=job.version + 1)
    assert _set(client, job, set="priority", priority="1").status_code == 409


def test_limits_are_for_those_who_may(sign_in: Callable[..., Client]) -> None:
    job = make_job()
    viewer = sign_in()
    for form in (
        {"set": "hours", "window_from": "09:00", "window_to": "10:00"},
        {"set": "start", "start_at": ""},
        {"set": "priority", "priority": "1"},
        {"set": "breaker", "breaker_streak": "3"},
    ):
        assert _set(viewer, job, **form).status_code == 403
    page = viewer.get(reverse("admin:job_limits", args=[job.pk]))
    assert "没有可以调整的限制" in text_of(page)


def test_form_of_a_new_job_takes_every_limit(client: Client) -> None:
    tomorrow = timezone.localtime() + timedelta(days=1)
    response = client.post(
        reverse("admin:job_new"),
        {
            "action": "send_text",
            "send_text.content": "你好",
            "file": SimpleUploadedFile("a.csv", "账号,客户ID\na,1\n".encode()),
            "start_at": f"{tomorrow:%Y-%m-%dT%H:%M}",
            "window_from": "09:00",
            "window_to": "21:00",
            "priority": "5",
            "max_attempts": "2",
            "call_size": "10",
            "breaker_streak": "4",
            "breaker_ratio": "30",
        },
    )
    assert response.status_code == 303, text_of(response)
    job = Job.objects.get()
    assert job.start_at is not None
    assert (job.window_from, job.window_to) == (time(9), time(21))
    assert (job.priority, job.max_attempts, job.call_size) == (5, 2, 10)
    assert (job.breaker_streak, job.breaker_ratio, job.breaker_window) == (4, 0.3, 200)


def test_form_of_a_new_job_keeps_a_faulty_limit_open_to_see(client: Client) -> None:
    response = client.post(
        reverse("admin:job_new"),
        {
            "action": "send_text",
            "send_text.content": "你好",
            "file": SimpleUploadedFile("a.csv", "账号,客户ID\na,1\n".encode()),
            "window_from": "09:00",
        },
    )
    assert response.status_code == 422
    html = response.content.decode()
    assert '<details class="more" open>' in html
    assert 'value="09:00"' in html
