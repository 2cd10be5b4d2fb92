"""Buttons: who may press them, what a stale page gets, and that GET changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from batches.models import Event, Job
from tests.factories import ShardSpec, make_job

from .conftest import World
from .pages import text_of

pytestmark = pytest.mark.django_db

#: verb → state it is tried in, its form, the permission it needs, what becomes of the job
MATRIX: dict[str, tuple[dict[str, object], dict[str, str], str, str]] = {
    "pause": ({"status": "running"}, {}, "operate_job", "paused"),
    "resume": ({"status": "paused", "pause_reason": "operator"}, {}, "operate_job", "running"),
    "confirm": ({"status": "awaiting"}, {}, "operate_job", "running"),
    "rate": ({"status": "running"}, {"per_min": "7"}, "operate_job", "running"),
    "cancel": ({"status": "running"}, {"reason": "发错了"}, "cancel_job", "cancelling"),
    "terminate": (
        {"status": "running", "name": "要终止的"},
        {"reason": "出事了", "confirm_name": "要终止的"},
        "terminate_job",
        "terminating",
    ),
    "stage": (
        {"status": "paused", "pause_reason": "stage", "stages": [1]},
        {},
        "approve_job",
        "running",
    ),
    "budget": (
        {"status": "running", "budget_limit": 10},
        {"to": "20", "reason": "追加"},
        "approve_job",
        "running",
    ),
    "retry": ({"status": "completed"}, {}, "operate_job", "running"),
}
#: verbs with pages of their own → a state that they are offered in
_OTHERS = {
    "limits": "running",
    "reread": "awaiting",
    "shard_pause": "running",
    "shard_resume": "running",
}
ALL = ("operate_job", "cancel_job", "approve_job", "terminate_job", "reconcile_item")


def _job(verb: str) -> Job:
    columns = MATRIX[verb][0]
    spec = ShardSpec(confirmed=2, failed=1) if verb == "retry" else ShardSpec(pending=3)
    return make_job(shards=[spec], **columns)


def _post(client: Client, verb: str, job: Job, **more: str) -> Any:
    form = {"version": str(job.version)} | MATRIX[verb][1] | more
    return client.post(reverse(f"admin:job_{verb}", args=[job.pk]), form)


@pytest.mark.parametrize("verb", MATRIX)
def test_verb_with_its_permission_acts_and_leaves_an_event(
    verb: str, sign_in: Callable[..., Client]
) -> None:
    job = _job(verb)
    response = _post(sign_in(MATRIX[verb][2]), verb, job)
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
    job = _job(verb)
    others = [name for name in ALL if name != MATRIX[verb][2]]
    response = _post(sign_in(*others), verb, job)
    assert response.status_code == 403
    fresh = Job.objects.get(pk=job.pk)
    assert (fresh.status, fresh.version) == (job.status, job.version)
    assert not Event.objects.filter(job=job).exists()


@pytest.mark.parametrize("verb", MATRIX)
def test_verb_from_a_stale_page_is_a_conflict_that_explains(verb: str, client: Client) -> None:
    job = _job(verb)
    Job.objects.filter(pk=job.pk).update(version=job.version + 1)
    response = _post(client, verb, job)
    assert response.status_code == 409
    text = text_of(response)
    assert "状态已被他人更改" in text
    assert "查看最新状态" in text
    assert Job.objects.get(pk=job.pk).status == job.status


@pytest.mark.parametrize("version", [None, "", "x", "-1", "1.0"])
@pytest.mark.parametrize("verb", [*MATRIX, "limits", "reread", "shard_pause", "shard_resume"])
def test_verb_without_a_readable_version_is_refused_and_changes_nothing(
    verb: str, version: str | None, client: Client
) -> None:
    job = _job(verb) if verb in MATRIX else make_job(status=_OTHERS[verb])
    form = dict(MATRIX[verb][1]) if verb in MATRIX else {"set": "priority", "priority": "9"}
    where = [job.pk, 1] if verb.startswith("shard") else [job.pk]
    address = reverse(f"admin:{verb}" if len(where) > 1 else f"admin:job_{verb}", args=where)
    if version is not None:
        form["version"] = version
    response = client.post(address, form)
    assert response.status_code == 400
    assert "没有带上作业的版本" in text_of(response)
    fresh = Job.objects.get(pk=job.pk)
    assert (fresh.status, fresh.version) == (job.status, job.version)
    assert not Event.objects.filter(job=job).exists()


@pytest.mark.parametrize("verb", MATRIX)
def test_verb_in_a_state_that_does_not_allow_it_is_a_conflict(verb: str, client: Client) -> None:
    job = make_job(status="cancelled", shards=[ShardSpec(abandoned=1)])
    response = _post(client, verb, job)
    assert response.status_code == 409
    assert "已取消" in text_of(response)
    assert "他人" not in text_of(response)


@pytest.mark.parametrize("verb", MATRIX)
def test_verb_without_the_csrf_token_is_refused(verb: str, sign_in: Callable[..., Client]) -> None:
    job = _job(verb)
    response = _post(sign_in(*ALL, enforce_csrf_checks=True), verb, job)
    assert response.status_code == 403
    assert Job.objects.get(pk=job.pk).status == job.status


@pytest.mark.parametrize("verb", MATRIX)
def test_verb_asked_for_with_get_changes_nothing(verb: str, client: Client) -> None:
    job = _job(verb)
    response = client.get(reverse(f"admin:job_{verb}", args=[job.pk]), MATRIX[verb][1])
    assert response.status_code in (200, 405)
    fresh = Job.objects.get(pk=job.pk)
    assert (fresh.status, fresh.version) == (job.status, job.version)


def test_pause_sent_twice_tells_the_second_what_the_job_is_now(client: Client) -> None:
    job = _job("pause")
    assert _post(client, "pause", job).status_code == 303
    second = _post(client, "pause", job)
    assert second.status_code == 409
    assert "已暂停" in text_of(second)
    assert "您自己" in text_of(second)
    assert "他人" not in text_of(second)


def test_cancel_without_a_reason_asks_again_and_keeps_the_job(client: Client) -> None:
    job = _job("cancel")
    response = _post(client, "cancel", job, reason="  ")
    assert response.status_code == 422
    assert "请填写原因" in text_of(response)
    assert Job.objects.get(pk=job.pk).status == "running"


def test_terminate_with_another_name_asks_again_and_keeps_what_was_typed(client: Client) -> None:
    job = _job("terminate")
    response = _post(client, "terminate", job, confirm_name="别的")
    assert response.status_code == 422
    assert "出事了" in response.content.decode()
    assert Job.objects.get(pk=job.pk).status == "running"


@pytest.mark.parametrize("typed", ["", " "])
def test_rate_left_empty_lifts_the_ceiling(typed: str, client: Client) -> None:
    job = make_job(rate_limit_per_min=5)
    _post(client, "rate", job, per_min=typed)
    assert Job.objects.get(pk=job.pk).rate_limit_per_min is None


@pytest.mark.parametrize("typed", ["0", "-3", "快", "1.5", "9" * 30])
def test_rate_that_is_no_number_is_refused_in_words(typed: str, client: Client) -> None:
    job = make_job(rate_limit_per_min=5)
    response = _post(client, "rate", job, per_min=typed)
    assert response.status_code == 422
    assert Job.objects.get(pk=job.pk).rate_limit_per_min == 5


def test_budget_raised_with_the_box_ticked_goes_on(client: Client) -> None:
    job = make_job(
        status="paused",
        pause_reason="budget",
        budget_limit=2,
        shards=[ShardSpec(pending=3, confirmed=2)],
    )
    _post(client, "budget", job, resume="1")
    job.refresh_from_db()
    assert (job.status, job.budget_limit) == ("running", 20)


def test_verb_from_the_list_leads_back_to_the_list(client: Client) -> None:
    job = _job("pause")
    response = _post(client, "pause", job, back="jobs")
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
