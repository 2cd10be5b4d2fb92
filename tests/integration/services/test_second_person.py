"""A large job is confirmed by another person than its maker."""

from __future__ import annotations

import pytest
from django.test import Client, override_settings

from batches.domain.errors import NotAllowedError
from batches.domain.states import JobStatus
from batches.models import Job
from batches.services.jobs import confirm_job
from tests.factories import ShardSpec, make_job, make_user

pytestmark = pytest.mark.django_db(transaction=True)


def awaiting(maker: str) -> tuple[Job, dict[str, object]]:
    people = {name: make_user("view_job", "operate_job", username=name) for name in ("li", "wang")}
    job = make_job(
        status=JobStatus.AWAITING, shards=[ShardSpec(pending=5)], created_by=people[maker]
    )
    return job, dict(people)


@override_settings(FOUR_EYES_ABOVE=4)
def test_confirm_of_a_large_job_by_its_maker_is_refused_and_by_another_done() -> None:
    job, people = awaiting("li")
    with pytest.raises(NotAllowedError, match="创建者以外"):
        confirm_job(job_id=job.pk, actor=people["li"])  # type: ignore[arg-type]
    job.refresh_from_db()
    assert job.status == JobStatus.AWAITING
    done = confirm_job(job_id=job.pk, actor=people["wang"])  # type: ignore[arg-type]
    assert done.status == JobStatus.RUNNING


@pytest.mark.parametrize("limit", [0, 5])
def test_confirm_of_a_job_within_the_limit_by_its_maker_is_done(limit: int) -> None:
    job, people = awaiting("li")
    with override_settings(FOUR_EYES_ABOVE=limit):
        done = confirm_job(job_id=job.pk, actor=people["li"])  # type: ignore[arg-type]
    assert done.status == JobStatus.RUNNING


@override_settings(FOUR_EYES_ABOVE=4)
def test_preview_of_a_large_job_offers_its_maker_no_button() -> None:
    job, people = awaiting("li")
    client = Client()
    client.force_login(people["li"])  # type: ignore[arg-type]
    page = client.get(f"/admin/jobs/{job.pk}/").content.decode()
    assert "创建者以外的人确认" in page
    assert "确认并启动" not in page
    client.force_login(people["wang"])  # type: ignore[arg-type]
    assert "确认并启动" in client.get(f"/admin/jobs/{job.pk}/").content.decode()
