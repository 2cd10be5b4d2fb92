"""Buttons: who may press them, what a stale page gets, and that GET changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from batches.models import Event, Job
from tests.factories import ShardSpec, make_job

from .conftest import World
from .pages import text_of
from .verb_matrix import MATRIX, a_file, address_of, job_for, press

pytestmark = pytest.mark.django_db

ALL = ("operate_job", "cancel_job", "approve_job", "terminate_job", "reconcile_item")


@pytest.mark.parametrize("verb", MATRIX)
def test_verb_with_its_permission_acts_and_leaves_an_event(
    verb: str, sign_in: Callable[..., Client]
) -> None:
    job = job_for(verb)
    response = press(sign_in(MATRIX[verb][2]), verb, job)
    assert response.status_code == 303
    job.refresh_from_db()
    assert job.status == MATRIX[verb][3]
    event = Event.objects.filter(job=job).latest("id")
    assert event.actor is not None
    assert event.reason == MATRIX[verb][1].get("reason", "")


@pytest.mark.parametrize("verb", MATRIX)
def test_verb_without_its_permission_is_refused_and_changes_nothing(
    verb: str, sign_in: Callable[..., Client]
) -> None:
    job = job_for(verb)
    others = [name for name in ALL if name != MATRIX[verb][2]]
    response = press(sign_in(*others), verb, job)
    assert response.status_code == 403
    fresh = Job.objects.get(pk=job.pk)
    assert (fresh.status, fresh.version) == (job.status, job.version)
    assert not Event.objects.filter(job=job).exists()


@pytest.mark.parametrize("verb", MATRIX)
def test_verb_from_a_stale_page_is_a_conflict_that_explains(verb: str, client: Client) -> None:
    job = job_for(verb)
    Job.objects.filter(pk=job.pk).update(version=job.version + 1)
    response = press(client, verb, job)
    assert response.status_code == 409
    text = text_of(response)
    assert "状态已被他人更改" in text
    assert "查看最新状态" in text
    assert Job.objects.get(pk=job.pk).status == job.status


@pytest.mark.parametrize("version", [None, "", "x", "-1", "1.0"])
@pytest.mark.parametrize("verb", MATRIX)
def test_verb_without_a_readable_version_is_refused_and_changes_nothing(
    verb: str, version: str | None, client: Client
) -> None:
    job = job_for(verb)
    form = dict(MATRIX[verb][1])
    if version is not None:
        form["version"] = version
    response = client.post(address_of(verb, job), form)
    assert response.status_code == 400
    assert "没有带上作业的版本" in text_of(response)
    fresh = Job.objects.get(pk=job.pk)
    assert (fresh.status, fresh.version) == (job.status, job.version)
    assert not Event.objects.filter(job=job).exists()


@pytest.mark.parametrize("verb", MATRIX)
def test_verb_in_a_state_that_does_not_allow_it_is_a_conflict(verb: str, client: Client) -> None:
    job = make_job(status="cancelled", shards=[ShardSpec(abandoned=1)], upload=a_file())
    response = press(client, verb, job)
    assert response.status_code == 409
    assert "已取消" in text_of(response)
    assert "他人" not in text_of(response)


@pytest.mark.parametrize("verb", MATRIX)
def test_verb_without_the_csrf_token_is_refused(verb: str, sign_in: Callable[..., Client]) -> None:
    job = job_for(verb)
    response = press(sign_in(*ALL, enforce_csrf_checks=True), verb, job)
    assert response.status_code == 403
    assert Job.objects.get(pk=job.pk).status == job.status


@pytest.mark.parametrize("verb", MATRIX)
def test_verb_asked_for_with_get_changes_nothing(verb: str, client: Client) -> None:
    job = job_for(verb)
    response = client.get(address_of(verb, job), MATRIX[verb][1])
    assert response.status_code in (200, 405)
    fresh = Job.objects.get(pk=job.pk)
    assert (fresh.status, fresh.version) == (job.status, job.version)


def test_pause_sent_twice_tells_the_second_what_the_job_is_now(client: Client) -> None:
    job = job_for("pause")
    assert press(client, "pause", job).status_code == 303
    second = press(client, "pause", job)
    assert second.status_code == 409
    assert "已暂停" in text_of(second)
    assert "您自己" in text_of(second)
    assert "他人" not in text_of(second)


def test_cancel_without_a_reason_asks_again_and_keeps_the_job(client: Client) -> None:
    job = job_for("cancel")
    response = press(client, "cancel", job, reason="  ")
    assert response.status_code == 422
    assert "请填写原因" in text_of(response)
    assert Job.objects.get(pk=job.pk).status == "running"


def test_terminate_with_another_name_asks_again_and_keeps_what_was_typed(client: Client) -> None:
    job = job_for("terminate")
    response = press(client, "terminate", job, confirm_name="别的")
    assert response.status_code == 422
    assert "出事了" in response.content.decode()
    assert Job.objects.get(pk=job.pk).status == "running"


@pytest.mark.parametrize("typed", ["", " "])
def test_rate_left_empty_lifts_the_ceiling(typed: str, client: Client) -> None:
    job = make_job(rate_limit_per_min=5)
    press(client, "rate", job, per_min=typed)
    assert Job.objects.get(pk=job.pk).rate_limit_per_min is None


@pytest.mark.parametrize("typed", ["0", "-3", "快", "1.5", "9" * 30])
def test_rate_that_is_no_number_is_refused_in_words(typed: str, client: Client) -> None:
    job = make_job(rate_limit_per_min=5)
    response = press(client, "rate", job, per_min=typed)
    assert response.status_code == 422
    assert Job.objects.get(pk=job.pk).rate_limit_per_min == 5


def test_budget_raised_with_the_box_ticked_goes_on(client: Client) -> None:
    job = make_job(
        status="paused",
        pause_reason="budget",
        budget_limit=2,
        shards=[ShardSpec(pending=3, confirmed=2)],
    )
    press(client, "budget", job, resume="1")
    job.refresh_from_db()
    assert (job.status, job.budget_limit) == ("running", 20)


def test_verb_from_the_list_leads_back_to_the_list(client: Client) -> None:
    job = job_for("pause")
    response = press(client, "pause", job, back="jobs")
    assert response.headers["Location"] == reverse("admin:jobs")


def test_shard_paused_and_resumed_alone(client: Client) -> None:
    job = make_job(shards=[ShardSpec(pending=2), ShardSpec(pending=2)])
    client.post(reverse("admin:shard_pause", args=[job.pk, 2]), {"version": job.version})
    statuses = list(job.shards.order_by("ordinal").values_list("status", flat=True))
    assert statuses == ["running", "paused"]
    job.refresh_from_db()
    client.post(reverse("admin:shard_resume", args=[job.pk, 2]), {"version": job.version})
    assert not job.shards.filter(status="paused").exists()


def test_unknown_job_is_not_found(client: Client, world: World) -> None:
    assert client.post(reverse("admin:job_pause", args=[10**9])).status_code == 404
