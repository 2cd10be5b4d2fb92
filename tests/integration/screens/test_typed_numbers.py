"""Numbers and choices as people type or forget them."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from batches.models import Account, Gateway, Job
from tests.factories import ShardSpec, make_account, make_job

from .pages import text_of

pytestmark = pytest.mark.django_db


def _post(client: Client, name: str, job: Job, **data: Any) -> Any:
    return client.post(
        reverse(f"admin:{name}", args=[job.pk]), {"version": job.version, **data}, follow=True
    )


def test_budget_and_rate_may_be_typed_as_the_console_shows_them(client: Client) -> None:
    job = make_job(
        status="paused", pause_reason="budget", budget_limit=1, shards=[ShardSpec(confirmed=1)]
    )
    _post(client, "job_budget", job, to="2,000", reason="加量")
    job.refresh_from_db()
    assert job.budget_limit == 2000
    _post(client, "job_rate", job, per_min="1,200")
    job.refresh_from_db()
    assert job.rate_limit_per_min == 1200


def test_budget_that_is_no_number_is_named_as_typed(client: Client) -> None:
    job = make_job(
        status="paused", pause_reason="budget", budget_limit=1, shards=[ShardSpec(confirmed=1)]
    )
    text = text_of(_post(client, "job_budget", job, to="abc", reason="加量"))
    assert "请填整数，现在是“abc”" in text
    assert "低于已经用掉" not in text


def test_priority_left_empty_is_asked_for(client: Client) -> None:
    job = make_job(priority=5)
    response = _post(client, "job_limits", job, set="priority", priority="", reason="x")
    assert response.status_code == 422
    assert "请填写优先级" in text_of(response)
    job.refresh_from_db()
    assert job.priority == 5


@pytest.mark.parametrize("form", [{}, {"active": ""}, {"active": "yes"}])
def test_account_is_switched_only_by_a_choice(client: Client, form: dict[str, str]) -> None:
    account = make_account()
    address = reverse("admin:account_active", args=[account.pk])
    response = client.post(address, {"reason": "x", **form})
    assert response.status_code == 422
    assert Account.objects.get(pk=account.pk).is_active


def test_retry_of_a_code_with_a_nul_is_no_fault_of_the_server(client: Client) -> None:
    job = make_job(shards=[ShardSpec(pending=1, failed=1)])
    address = reverse("admin:job_retry", args=[job.pk])
    assert client.get(address, {"code": "\0"}).status_code < 500
    assert _post(client, "job_retry", job, code="\0", reason="x").status_code < 500


@pytest.mark.parametrize("typed", ["HTTP://Gateway.example:80/", "http://gateway.example/"])
def test_gateway_at_an_address_that_is_there_is_refused_however_it_is_written(
    client: Client, typed: str
) -> None:
    Gateway.objects.create(base_url="http://gateway.example", callback_secret="x" * 30)
    form = {
        "name": "乙", "kind": "wecomapi", "dialect": "path", "base_url": typed,
        "timeout_seconds": "30", "options": "{}", "is_active": "on",
    }  # fmt: skip
    response = client.post(reverse("admin:batches_gateway_add"), form)
    assert response.status_code == 200
    assert response.context["errors"]
    assert Gateway.objects.count() == 1
