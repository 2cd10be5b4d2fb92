"""Where a job stands, the page and the list say why and have the button that the words name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from batches.models import Account, Job, Shard
from batches.selectors.why import why_each, why_not_moving
from batches.services import jobs
from batches.store.trips import lose_credential
from tests.factories import ShardSpec, make_account, make_job, make_lane

from .pages import faults_of, text_of

pytestmark = pytest.mark.django_db


def _jobs(client: Client) -> Any:
    return client.get(reverse("admin:jobs"))


def _page(client: Client, job: Job) -> str:
    return client.get(reverse("admin:job", args=[job.pk])).content.decode()


# --- the list says why ---


def test_list_says_why_a_job_stands_in_the_words_of_its_page(client: Client) -> None:
    job = make_job(started_at=timezone.now() - timedelta(minutes=6))
    make_lane(alive=False)
    page = _jobs(client)
    assert "没有执行进程在运行" in text_of(page)
    assert page.context["rows"][0].why == why_not_moving(job)
    Account.objects.update(is_active=False)
    assert "已停用，3 条发不出去" in text_of(_jobs(client))
    assert faults_of(_jobs(client).content.decode()) == []


def test_list_says_nothing_of_jobs_that_move_or_are_at_their_end(client: Client) -> None:
    make_lane()
    make_job()
    make_job(status="completed", shards=[ShardSpec(confirmed=1)])
    make_job(status="awaiting")
    text = text_of(_jobs(client))
    for words in ("正在推进", "已了结", "还没有人确认"):
        assert words not in text


_STANDING: tuple[Callable[[], Job], ...] = (
    make_job,
    lambda: make_job(shards=[ShardSpec(pending=1, account=make_account(is_active=False))]),
    lambda: make_job(shards=[ShardSpec(pending=1, status="paused", reason="breaker")]),
    lambda: make_job(start_at=timezone.now() + timedelta(hours=2)),
    lambda: make_job(shards=[ShardSpec(inflight=1)]),
    lambda: jobs.pause_job(job_id=make_job().pk, actor=None, reason="先停"),
    lambda: make_job(status="paused", pause_reason="budget", budget_limit=5),
    lambda: make_job(status="paused", pause_reason="permission"),
    lambda: make_job(status="pausing", pause_reason="operator", shards=[ShardSpec(inflight=1)]),
    lambda: make_job(status="verifying", shards=[ShardSpec(in_doubt=2, accepted=1)]),
    lambda: make_job(status="terminated", shards=[ShardSpec(in_doubt=2)]),
)


def test_many_jobs_asked_at_once_answer_as_each_alone() -> None:
    make_lane()
    made = [Job.objects.get(pk=make().pk) for make in _STANDING for _ in range(2)]
    assert why_each(made) == {job.pk: why_not_moving(job) for job in made}


def test_list_of_more_standing_jobs_makes_as_many_queries(client: Client) -> None:
    def asked() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert _jobs(client).status_code == 200
        return len(queries)

    make_lane()
    for make in _STANDING:
        make()
    few = asked()
    for make in _STANDING:
        make()
    assert asked() == few


# --- after a budget was raised ---


def _spent(**columns: Any) -> Job:
    shards = [ShardSpec(pending=3, confirmed=2)]
    return make_job(
        status="paused", pause_reason="budget", budget_limit=2, shards=shards, **columns
    )


@pytest.mark.parametrize("approver", [True, False])
def test_job_whose_budget_was_raised_offers_to_go_on(
    sign_in: Callable[..., Client], approver: bool
) -> None:
    job = _spent()
    person = sign_in("operate_job", *(["approve_job"] if approver else []))
    resume = f'action="{reverse("admin:job_resume", args=[job.pk])}"'
    assert resume not in _page(person, job)
    assert resume not in _jobs(person).content.decode()
    job = jobs.raise_budget(job_id=job.pk, actor=None, to=4, reason="够用")
    assert job.status == "paused"
    page = _page(person, job)
    assert "已提高到 4 条，还没有继续" in page
    assert "等待有预算权限的人提高预算" not in page
    assert resume in page
    assert resume in _jobs(person).content.decode()
    address = reverse("admin:job_resume", args=[job.pk])
    assert person.post(address, {"version": job.version}).status_code == 303
    assert Job.objects.get(pk=job.pk).status == "running"


def test_job_whose_budget_was_raised_offers_nothing_to_a_viewer(
    sign_in: Callable[..., Client],
) -> None:
    job = _spent()
    jobs.raise_budget(job_id=job.pk, actor=None, to=4, reason="够用")
    assert reverse("admin:job_resume", args=[job.pk]) not in _page(sign_in(), job)


# --- shards that the system stopped, in a job that runs on ---


def _tripped() -> Job:
    make_lane()
    return make_job(
        shards=[
            ShardSpec(pending=2, status="paused", reason="breaker"),
            ShardSpec(pending=2, status="paused", reason="operator"),
            ShardSpec(pending=2),
        ]
    )


def _logged_out() -> Job:
    make_lane()
    account = make_account()
    job = make_job(shards=[ShardSpec(pending=2, account=account)])
    lose_credential(account.pk, note="login")
    return job


@pytest.mark.parametrize(
    ("make", "code", "taken_up"),
    [(_tripped, "partly_stopped", [1, 3]), (_logged_out, "credential", [1])],
)
@pytest.mark.parametrize("page", ["admin:job", "admin:job_shards"])
def test_running_job_with_stopped_shards_offers_to_take_them_up(
    operator: User, client: Client, make: Callable[[], Job], code: str, taken_up: list[int],
    page: str,
) -> None:  # fmt: skip
    job = Job.objects.get(pk=make().pk)
    said = why_not_moving(job)
    assert said.code == code
    html = client.get(reverse(page, args=[job.pk])).content.decode()
    address = reverse("admin:job_resume", args=[job.pk])
    assert f'action="{address}"' in html
    assert "继续停下的分片" in html
    assert client.post(address, {"version": job.version}).status_code == 303
    running = Shard.objects.filter(job=job, status="running").order_by("ordinal")
    assert [shard.ordinal for shard in running] == taken_up
    assert "继续停下的分片" not in client.get(reverse(page, args=[job.pk])).content.decode()


def test_words_name_that_button_only_where_it_is(client: Client) -> None:
    job = _tripped()
    assert "继续停下的分片" in why_not_moving(job).cure
    job.shards.filter(ordinal=1).update(status="paused", reason="operator")
    assert "继续停下的分片" not in why_not_moving(job).cure
    assert "继续停下的分片" not in _page(client, job)


def test_viewer_is_offered_no_stopped_shards(sign_in: Callable[..., Client]) -> None:
    assert "继续停下的分片</span>" not in _page(sign_in(), _tripped())


def test_stopped_shards_are_offered_without_a_reload_once_one_stops(client: Client) -> None:
    """The polled part brings the button: a shard that trips changes no version of its job."""
    make_lane()
    job = make_job(shards=[ShardSpec(pending=2), ShardSpec(pending=2)])
    job.shards.filter(ordinal=1).update(status="paused", reason="breaker")
    live = client.get(reverse("admin:job_live", args=[job.pk]), {"n": job.version, "s": job.status})
    assert "继续停下的分片" in live.content.decode()
