"""Shards that could send and do not: told where nothing explains it, and only there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from batches.domain.states import JobStatus
from batches.engine.watch import watch
from batches.models import Account, Alert, Event, Gateway, Item, Job, Lane
from tests.factories import ShardSpec, make_account, make_job

from .watched import ago, kinds, only, open_alerts, running

pytestmark = pytest.mark.django_db


def test_watch_shards_that_nothing_explains_are_stuck(lane: Lane) -> None:
    job = running(ShardSpec(pending=3, account=make_account(name="客服甲")))
    watch()
    kind, text = only()
    assert kind == "job.stuck"
    assert "1 个分片卡住（账号 客服甲）：3 条可以发送，却超过 5 分钟" in text
    job.shards.update(last_advanced_at=timezone.now())
    watch()
    assert open_alerts() == []


def test_watch_one_stuck_account_beside_one_that_moves_is_told(lane: Lane) -> None:
    moving, still = make_account(), make_account(name="客服乙")
    job = running(ShardSpec(pending=3, account=moving), ShardSpec(pending=2, account=still))
    job.shards.filter(account=moving).update(last_advanced_at=timezone.now())
    watch()
    assert "1 个分片卡住（账号 客服乙）：2 条" in only()[1]


def _elsewhere(job: Job) -> None:
    """Its account is busy with another job that goes first."""
    account = job.shards.get().account
    make_job(shards=[ShardSpec(pending=5, confirmed=1, account=account)])


def _finished_just_now(job: Job) -> None:
    account = job.shards.get().account
    make_job(status=JobStatus.COMPLETED, shards=[ShardSpec(confirmed=1, account=account)])


def _shared_limit(job: Job) -> None:
    """Its gateway has a limit for all, and serves others at present."""
    gateway = job.shards.get().account.gateway
    Gateway.objects.filter(pk=gateway.pk).update(rate_limit_per_min=10)
    make_job(shards=[ShardSpec(pending=5, confirmed=1, account=make_account(gateway=gateway))])


def _redis_away(job: Job) -> None:
    Gateway.objects.update(max_concurrent=4)
    Lane.objects.update(note="redis")
    Account.objects.update(lane=Lane.objects.get())


def _in_flight(job: Job) -> None:
    account = job.shards.get().account
    make_job(shards=[ShardSpec(inflight=1, account=account)], lane=Lane.objects.get())


@pytest.mark.parametrize(
    "cause",
    [
        lambda _job: Account.objects.update(hold_until=ago(seconds=5), hold_reason="backoff"),
        lambda _job: Account.objects.update(gate_at=timezone.now() + timedelta(minutes=9)),
        lambda _job: Account.objects.update(gate_at=ago(seconds=20)),
        lambda job: Job.objects.filter(pk=job.pk).update(rate_at=timezone.now()),
        lambda job: Item.objects.filter(job_id=job.pk).update(due_at=ago(seconds=30)),
        lambda job: Event.objects.create(kind="job.resumed", job=job),
        lambda job: Job.objects.filter(pk=job.pk).update(start_at=ago(minutes=4)),
        lambda _job: Account.objects.update(is_active=False),
        lambda _job: Account.objects.update(health="credential"),
        _elsewhere,
        _finished_just_now,
        _shared_limit,
        _redis_away,
        _in_flight,
    ],
    ids=["held", "gate", "claimed just now", "job rate", "backoff", "resumed", "started", "off",
         "login", "other job", "finished job", "gateway limit", "redis", "in flight"],
)  # fmt: skip
def test_watch_wait_that_something_explains_is_not_stuck(
    lane: Lane, cause: Callable[[Job], Any]
) -> None:
    job = running()
    watch()
    assert kinds() == ["job.stuck"], "without the cause it would be"
    Alert.objects.all().delete()
    cause(job)
    watch()
    assert "job.stuck" not in kinds()


@pytest.mark.parametrize("kind", ["job.calls_lost", "job.tripped", "item.delivered"])
def test_watch_what_happened_to_a_stuck_job_does_not_excuse_it(lane: Lane, kind: str) -> None:
    job = running()
    Event.objects.create(kind=kind, job=job)
    watch()
    assert kinds() == ["job.stuck"]
