"""新建作业 filled from an earlier job: refused, finished, gone."""

from __future__ import annotations

import re
from datetime import time, timedelta
from html import unescape
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from batches.domain.breaker import Thresholds
from batches.models import Job, Upload
from batches.services.limits import thresholds_of
from batches.services.submissions import run_intake
from tests.factories import ShardSpec, make_account, make_job

from .conftest import World
from .pages import faults_of, text_of

pytestmark = pytest.mark.django_db
GOOD = "账号,客户ID,姓名\nacc-1,788130001,张三\nacc-1,788130002,李四\n"
NEW = "admin:job_new"


def _form(client: Client, job: Job) -> dict[str, str]:
    """What the filled form would send, its file apart."""
    response = client.get(reverse(NEW), {"from": job.pk})
    html = response.content.decode()
    assert response.status_code == 200
    assert faults_of(html) == []
    html = html.split('<form class="new-job"')[1].split("</form>")[0]
    fields = {
        name: unescape(value)
        for tag in re.findall(r"<input [^>]*>", html)
        if 'type="radio"' not in tag
        for name in re.findall(r'name="([^"]+)"', tag)
        for value in re.findall(r' value="([^"]*)"', tag)
    }
    for name, body in re.findall(
        r'<textarea [^>]*name="([^"]+)"[^>]*>(.*?)</textarea>', html, re.DOTALL
    ):
        fields[name] = unescape(body)
    for name, body in re.findall(
        r'<select [^>]*name="([^"]+)"[^>]*>(.*?)</select>', html, re.DOTALL
    ):
        chosen = re.findall(r'value="([^"]*)" selected', body)
        fields[name] = chosen[0] if chosen else re.findall(r'value="([^"]*)"', body)[0]
    chosen = re.findall(r'name="action" value="([^"]+)" checked', html)
    assert len(chosen) == 1
    fields.pop("csrfmiddlewaretoken", None)
    return fields | {"action": chosen[0]}


def _send(client: Client, form: dict[str, str], job: Job, text: str = GOOD) -> Any:
    file = SimpleUploadedFile("名单.csv", text.encode())
    return client.post(reverse(NEW) + f"?from={job.pk}", {**form, "file": file})


def _limits(job: Job) -> tuple[object, ...]:
    names = (
        "action params budget_limit stages rate_limit_per_min bad_rows start_at window_from"
        " window_to priority max_attempts call_size"
    )
    return (*(getattr(job, name) for name in names.split()), thresholds_of(job))


@pytest.fixture
def special(db: None) -> Job:
    """A finished job with nothing at its default."""
    make_account(guid="acc-1")
    return make_job(
        name="关怀",
        status="completed",
        shards=[ShardSpec(confirmed=1)],
        params={"content": '您好，{姓名}\n"<b>&amp;'},
        budget_limit=1500,
        stages=[50, 500],
        rate_limit_per_min=30,
        bad_rows="skip",
        start_at=(timezone.now() + timedelta(days=2)).replace(second=0, microsecond=0),
        window_from=time(9, 30),
        window_to=time(21),
        priority=-5,
        max_attempts=3,
        call_size=20,
        breaker_streak=7,
        breaker_ratio=0.125,
        breaker_window=90,
        breaker_min_sample=40,
        breaker_shard_share=0.3,
    )


def test_form_from_a_job_makes_another_with_the_same_settings(client: Client, special: Job) -> None:
    form = _form(client, special)
    response = _send(client, form, special)
    assert response.status_code == 303, text_of(response)
    made = Job.objects.latest("id")
    assert made.pk != special.pk
    assert _limits(made) == _limits(special)
    assert made.name == "关怀 (2)"
    assert made.rerun_reason == ""


def test_page_names_the_job_and_asks_for_the_file(client: Client, special: Job) -> None:
    response = client.get(reverse(NEW), {"from": special.pk})
    shown = text_of(response)
    assert f"设置取自作业「关怀」（#{special.pk}），文件没有带过来" in shown
    assert "请重新选择文件" in shown
    assert reverse("admin:job", args=[special.pk]) in response.content.decode()


def test_usual_limits_stay_empty(client: Client) -> None:
    job = make_job(status="completed", shards=[ShardSpec(confirmed=1)])
    assert thresholds_of(job) == Thresholds()
    form = _form(client, job)
    filled = {name for name, value in form.items() if value}
    assert filled == {"action", "name", "bad_rows", "send_text.content", "tag_customers.mode"}
    assert '<details class="more">' in client.get(reverse(NEW), {"from": job.pk}).content.decode()


def test_start_that_is_over_is_left_out_and_said(client: Client, special: Job) -> None:
    Job.objects.filter(pk=special.pk).update(start_at=timezone.now() - timedelta(minutes=1))
    assert _form(client, special)["start_at"] == ""
    shown = text_of(client.get(reverse(NEW), {"from": special.pk}))
    assert "原来的定时开始时间已过" in shown


@pytest.mark.parametrize(
    ("name", "status", "started", "expected"),
    [
        ("关怀", "completed", True, "关怀 (2)"),
        ("关怀 (9)", "cancelled", True, "关怀 (10)"),
        ("关" * 200, "completed", True, "关" * 196 + " (2)"),
        ("关怀", "rejected", False, "关怀"),
        ("关怀", "cancelled", False, "关怀"),
        ("发送文本消息 {today} 名单", "completed", True, ""),
    ],
)
def test_name_is_numbered_only_where_two_jobs_would_share_it(
    name: str, status: str, started: bool, expected: str, client: Client
) -> None:
    job = make_job(
        name=name.format(today=timezone.localdate().isoformat()),
        status=status,  # type: ignore[arg-type]
        started_at=timezone.now() if started else None,
        upload=Upload.objects.create(name="名单.csv", size=1, sha256="0" * 64),
    )
    assert _form(client, job)["name"] == expected


def test_refused_file_corrected_and_uploaded_again_becomes_a_new_job(client: Client) -> None:
    make_account(guid="acc-1")
    form = {"action": "send_text", "send_text.content": "你好 {姓名}", "rate": "30"}
    bad = SimpleUploadedFile("名单.csv", (GOOD + "acc-1,,王五\n").encode())
    client.post(reverse(NEW), {**form, "file": bad})
    refused = Job.objects.get()
    run_intake(refused.pk)
    refused.refresh_from_db()
    assert refused.status == "rejected"
    page = client.get(reverse("admin:job", args=[refused.pk])).content.decode()
    assert reverse(NEW) + f"?from={refused.pk}" in page
    assert _send(client, _form(client, refused), refused).status_code == 303
    made = Job.objects.latest("id")
    run_intake(made.pk)
    made.refresh_from_db()
    assert (made.status, made.total, made.rate_limit_per_min) == ("awaiting", 2, 30)


def test_filled_form_with_the_same_file_leads_to_the_job_there_is(client: Client) -> None:
    make_account(guid="acc-1")
    file = SimpleUploadedFile("名单.csv", GOOD.encode())
    form = {"action": "send_text", "send_text.content": "你好 {姓名}", "budget": "9"}
    client.post(reverse(NEW), {**form, "file": file})
    job = Job.objects.get()
    response = _send(client, _form(client, job), job)
    assert response.headers["Location"] == reverse("admin:job", args=[job.pk])
    assert Job.objects.count() == 1


def test_fault_in_a_filled_form_keeps_what_was_typed_and_the_job_it_came_from(
    client: Client, special: Job
) -> None:
    response = _send(client, _form(client, special) | {"rate": "快", "name": "改过"}, special)
    assert response.status_code == 422
    html = response.content.decode()
    assert 'value="改过"' in html
    assert "设置取自作业「关怀」" in text_of(response)
    assert "data-draft-posted" in html


@pytest.mark.parametrize("address", ["999999", "x", "", "1'--", "99999999999999999999"])
def test_job_that_is_not_there_fills_in_nothing_and_is_said(client: Client, address: str) -> None:
    response = client.get(reverse(NEW), {"from": address})
    assert response.status_code == 200
    assert "要作为模板的作业不存在" in text_of(response)
    assert "data-draft-template" not in response.content.decode()


def test_job_of_an_action_that_is_gone_fills_in_the_rest(client: Client) -> None:
    job = make_job(status="completed", shards=[ShardSpec(confirmed=1)], budget_limit=7)
    Job.objects.filter(pk=job.pk).update(action="gone", params={"x": "1"})
    form = _form(client, job)
    assert (form["action"], form["budget"]) == ("send_text", "7")


def test_links_to_a_filled_form_are_for_operators(
    sign_in: Any, client: Client, world: World
) -> None:
    address = reverse(NEW) + f"?from={world.completed.pk}"
    pages = [
        reverse("admin:job", args=[world.completed.pk]),
        reverse("admin:job_failures", args=[world.completed.pk]),
    ]
    viewer = sign_in()
    assert viewer.get(address).status_code == 403
    for page in pages:
        assert address in client.get(page).content.decode()
        assert address not in viewer.get(page).content.decode()


def test_running_job_offers_no_copy_of_itself(client: Client, world: World) -> None:
    page = client.get(reverse("admin:job", args=[world.running.pk]))
    assert "以此为模板新建" not in text_of(page)
