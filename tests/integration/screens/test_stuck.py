"""卡住 is said of what nothing explains, in the same words and numbers everywhere."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from batches.engine.watch import watch
from batches.models import Account, Alert, Event, Job
from batches.selectors.why import why_not_moving
from tests.factories import ShardSpec, make_account, make_job, make_lane

from .pages import text_of

pytestmark = pytest.mark.django_db
LONG = timedelta(minutes=20)


def _standing(*specs: ShardSpec, **columns: Any) -> Job:
    """Let go long ago, a lane alive, and nothing advanced since."""
    make_lane()
    job = make_job(
        shards=specs or [ShardSpec(pending=3)], started_at=timezone.now() - LONG, **columns
    )
    job.shards.update(last_advanced_at=timezone.now() - LONG)
    return job


def _seen(client: Client, job: Job) -> tuple[int, int, list[int], bool]:
    """How many jobs and shards are called stuck: on the front page, on the job's, by an alert."""
    overview = client.get(reverse("admin:index"))
    page = client.get(reverse("admin:job", args=[job.pk]))
    shards = client.get(reverse("admin:job_shards", args=[job.pk]), {"having": "stuck"})
    watch()
    stuck = [row.ordinal for row in page.context["live"].shards.rows if row.stuck]
    return (
        overview.context["overview"].stuck,
        shards.context["found"],
        stuck,
        Alert.objects.filter(kind="job.stuck", closed_at=None).exists(),
    )


NOWHERE = (0, 0, [], False)


def _outside_hours(job: Job) -> None:
    here = timezone.localtime()
    Job.objects.filter(pk=job.pk).update(
        window_from=(here + timedelta(hours=1)).time(),
        window_to=(here + timedelta(hours=2)).time(),
    )


def _opened_just_now(job: Job) -> None:
    here = timezone.localtime()
    Job.objects.filter(pk=job.pk).update(
        window_from=(here - timedelta(minutes=1)).time(),
        window_to=(here + timedelta(hours=2)).time(),
    )


def _starts_later(job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(start_at=timezone.now() + timedelta(hours=5))


def _slow(job: Job) -> None:
    """At a twentieth of one a minute the next may go after twenty minutes."""
    Account.objects.update(
        total_rate_per_min=1, throttle=0.05, gate_at=timezone.now() + timedelta(minutes=9)
    )


def _resumed(job: Job) -> None:
    """It stood overnight, by the wish of a person."""
    Event.objects.create(kind="job.resumed", job=job)


@pytest.mark.parametrize(
    ("cause", "code"),
    [
        (_outside_hours, "window"),
        (_opened_just_now, "moving"),
        (_starts_later, "scheduled"),
        (lambda _job: Account.objects.update(is_active=False), "account_off"),
        (_slow, "rate"),
        (_resumed, "moving"),
    ],
    ids=["outside hours", "hours began", "set start", "account off", "slow account", "resumed"],
)
def test_wait_that_something_explains_is_stuck_nowhere_and_keeps_its_sentence(
    client: Client, cause: Callable[[Job], Any], code: str
) -> None:
    job = _standing()
    assert _seen(client, job) == (1, 1, [1], True), "without the cause it is"
    cause(job)
    assert _seen(client, job) == NOWHERE
    job.refresh_from_db()
    said = why_not_moving(job)
    assert said.code == code
    assert "分钟没有推进" not in text_of(client.get(reverse("admin:index")))
    if said.level != "ok":
        assert said.sentence in text_of(client.get(reverse("admin:job", args=[job.pk])))


def test_accounts_taking_turns_under_the_jobs_ceiling_are_not_stuck(client: Client) -> None:
    """Five a minute over sixty accounts: each waits twelve minutes for its turn, rightly."""
    job = _standing(*[ShardSpec(pending=3) for _ in range(60)], rate_limit_per_min=5)
    now = timezone.now()
    for shard in job.shards.order_by("ordinal"):
        advanced = now - shard.ordinal * timedelta(seconds=12)
        Account.objects.filter(pk=shard.account_id).update(gate_at=advanced)
        job.shards.filter(pk=shard.pk).update(last_advanced_at=advanced)
    Job.objects.filter(pk=job.pk).update(rate_at=now + timedelta(seconds=2))
    assert _seen(client, job) == NOWHERE


def test_one_shard_that_nothing_explains_is_told_beside_those_that_move(client: Client) -> None:
    job = _standing(*[ShardSpec(pending=3, account=make_account()) for _ in range(3)])
    job.shards.exclude(ordinal=2).update(last_advanced_at=timezone.now())
    assert _seen(client, job) == (1, 1, [2], True)
    said = why_not_moving(job)
    assert (said.code, said.level) == ("partly_stuck", "warn")
    for address in (reverse("admin:index"), reverse("admin:job", args=[job.pk])):
        response = client.get(address)
        assert "1 个分片超过 5 分钟没有推进，其他分片照常。" in text_of(response)
        shards = reverse("admin:job_shards", args=[job.pk])
        assert f'href="{shards}?having=stuck"' in response.content.decode()
    assert why_not_moving(job, job.shards.get(ordinal=2)).code == "stuck"
    assert why_not_moving(job, job.shards.get(ordinal=1)).code == "moving"
