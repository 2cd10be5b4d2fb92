"""The recount of ceilings and stops: each breach is found, and what is none stays unsaid."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from batches.domain.states import JobStatus, PauseReason
from batches.models import Account, Call, Event, Gateway, Job
from batches.selectors.verify import verify
from batches.services import jobs as services
from batches.store.advance import advance_jobs
from batches.store.trips import trip_job
from tests.factories import ShardSpec, items_of, make_account, make_gateway, make_job

pytestmark = pytest.mark.django_db


def _found(**words: Any) -> list[tuple[str, Any]]:
    return [(one.code, one.params) for one in verify(**words).findings]


def _codes(**words: Any) -> list[str]:
    return [code for code, _ in _found(**words)]


def _event(kind: str, *, ago: float = 60, **columns: Any) -> Event:
    event = Event.objects.create(kind=kind, **columns)
    Event.objects.filter(pk=event.pk).update(at=timezone.now() - timedelta(minutes=ago))
    return event


def _sent(job: Job, *, ago: float = 30, apart: float = 25) -> None:
    """The calls of a job, by id and so many seconds apart, began so many minutes ago."""
    at = timezone.now() - timedelta(minutes=ago)
    for number, call in enumerate(Call.objects.filter(job_id=job.pk).order_by("id")):
        Call.objects.filter(pk=call.pk).update(sent_at=at + timedelta(seconds=apart * number))


# --- the ceiling of a job ---


@pytest.fixture
def fast() -> Job:
    """Three sends in fifty seconds by two accounts, of a job that may do two a minute."""
    job = make_job(
        shards=[ShardSpec(confirmed=2, pending=1), ShardSpec(failed=1)], rate_limit_per_min=2
    )
    _sent(job)
    return job


def test_verify_job_above_its_ceiling_is_found(fast: Job) -> None:
    ((code, params),) = _found()
    assert (code, params["job_id"], params["sends"], params["allowed"]) == (
        "over_job_rate", fast.pk, 3, 2,
    )  # fmt: skip
    assert _codes(job_id=fast.pk) == ["over_job_rate"]
    assert _codes(job_id=make_job().pk) == []


def test_verify_job_at_its_ceiling_is_fine(fast: Job) -> None:
    _sent(fast, apart=31)
    assert _codes() == []


def test_verify_job_without_a_ceiling_is_not_judged(fast: Job) -> None:
    Job.objects.filter(pk=fast.pk).update(rate_limit_per_min=None)
    assert _codes() == []


def test_verify_call_of_many_targets_counts_each(fast: Job) -> None:
    first, *others = Call.objects.filter(job_id=fast.pk).order_by("id")
    Call.objects.filter(pk__in=[call.pk for call in others]).update(outcome="not_sent")
    assert "over_job_rate" not in _codes()
    Call.objects.filter(pk=first.pk).update(item_ids=[1, 2, 3])
    assert "over_job_rate" in _codes()


def test_verify_sends_before_the_ceiling_was_set_are_not_judged(fast: Job) -> None:
    _event("job.rate_set", job=make_job(), ago=1)
    assert _codes() == ["over_job_rate"]
    _event("job.rate_set", job=fast, ago=31)
    assert _codes() == ["over_job_rate"]
    services.set_rate(job_id=fast.pk, actor=None, per_min=1)
    assert _codes() == []


# --- the limit of a gateway ---


@pytest.fixture
def gateway() -> Gateway:
    """Of two accounts, which together sent three in fifty seconds where two are allowed."""
    gateway = make_gateway(rate_limit_per_min=2)
    accounts = [make_account(gateway=gateway), make_account(gateway=gateway)]
    job = make_job(
        shards=[
            ShardSpec(confirmed=2, pending=1, account=accounts[0]),
            ShardSpec(in_doubt=1, account=accounts[1]),
        ]
    )
    _sent(job)
    return gateway


def test_verify_gateway_above_its_limit_is_found(gateway: Gateway) -> None:
    ((code, params),) = _found()
    assert (code, params["gateway"], params["sends"], params["allowed"]) == (
        "over_gateway_rate", gateway.base_url, 3, 2,
    )  # fmt: skip
    assert _codes(job_id=Job.objects.get().pk) == ["over_gateway_rate"]
    assert _codes(job_id=make_job().pk) == []


def test_verify_gateway_at_its_limit_or_without_one_is_fine(gateway: Gateway) -> None:
    _sent(Job.objects.get(), apart=31)
    assert _codes() == []
    _sent(Job.objects.get(), apart=1)
    Gateway.objects.update(rate_limit_per_min=None)
    assert _codes() == []


@pytest.mark.parametrize(
    "columns",
    [
        {"outcome": "not_sent"},
        {"category": "lost"},
        {"category": "aborted"},
        {"outcome": None, "lost_at": None},
    ],
)
def test_verify_calls_that_may_never_have_left_do_not_count_for_a_gateway(
    columns: dict[str, Any], gateway: Gateway
) -> None:
    Call.objects.filter(outcome="unknown").update(**columns)
    assert "over_gateway_rate" not in _codes()


def _limit_changed(gateway: Gateway, *, ago: float, **after: Any) -> None:
    _event(
        "gateway.changed",
        ago=ago,
        data={"object": {"id": gateway.pk, "name": gateway.name}, "after": after},
    )


def test_verify_sends_before_a_change_of_the_gateways_limit_are_not_judged(
    gateway: Gateway,
) -> None:
    _limit_changed(make_gateway(), ago=1, rate_limit_per_min=2)
    _limit_changed(gateway, ago=1, name="别名")
    _limit_changed(gateway, ago=31, rate_limit_per_min=2)
    assert _codes() == ["over_gateway_rate"]
    _limit_changed(gateway, ago=29.9, rate_limit_per_min=2)
    assert _codes() == []


def test_verify_sends_until_the_lanes_know_the_new_limit_are_not_judged(
    gateway: Gateway, settings: Any
) -> None:
    settings.LANE_LEASE_SECONDS = 8
    _limit_changed(gateway, ago=30.3, rate_limit_per_min=2)
    assert _codes() == []
    settings.LANE_LEASE_SECONDS = 4
    assert _codes() == ["over_gateway_rate"]


def test_verify_sends_of_an_account_from_before_it_was_moved_are_not_judged(
    gateway: Gateway,
) -> None:
    account = Account.objects.filter(shard__confirmed__gt=0).get()
    _event("account.changed", ago=1, account=account, data={"after": {"name": "别名"}})
    assert _codes() == ["over_gateway_rate"]
    _event("account.changed", ago=1, account=account, data={"after": {"gateway": "http://x"}})
    assert _codes() == []


# --- stops at the item boundary ---


def _job() -> Job:
    """Two calls, half an hour ago."""
    job = make_job(shards=[ShardSpec(confirmed=2, pending=2)])
    _sent(job)
    return job


def _claimed_now(job: Job) -> None:
    call = Call.objects.filter(job_id=job.pk).latest("id")
    Call.objects.filter(pk=call.pk).update(sent_at=timezone.now())


def _trip(job: Job) -> None:
    assert trip_job(job.pk, reason=PauseReason.BREAKER, data={}, since=job.breaker_from)


STOPS: dict[str, Callable[[Job], object]] = {
    "paused": lambda job: services.pause_job(job_id=job.pk, actor=None),
    "cancelling": lambda job: services.cancel_job(job_id=job.pk, actor=None, reason="错"),
    "terminating": lambda job: services.terminate_job(job_id=job.pk, actor=None, reason="错"),
    "tripped": _trip,
    "budget": lambda job: (
        Job.objects.filter(pk=job.pk).update(budget_limit=2),
        advance_jobs([job.pk]),
    ),
}


@pytest.mark.parametrize("stop", STOPS)
def test_verify_claim_after_a_stop_is_found(stop: str) -> None:
    job = _job()
    STOPS[stop](job)
    assert _codes() == []
    _claimed_now(job)
    ((code, params),) = _found()
    assert (code, params["job_id"], params["calls"]) == ("claimed_while_stopped", job.pk, 1)
    assert params["sent_at"] > params["at"]


def test_verify_claim_between_a_stop_and_a_resume_is_found() -> None:
    job = _job()
    STOPS["paused"](job)
    _claimed_now(job)
    services.resume_job(job_id=job.pk, actor=None)
    assert _codes() == ["claimed_while_stopped"]
    assert _codes(job_id=job.pk) == ["claimed_while_stopped"]
    assert _codes(job_id=make_job().pk) == []


def test_verify_claims_before_a_stop_and_after_a_resume_are_fine() -> None:
    job = _job()
    _claimed_now(job)
    STOPS["paused"](job)
    services.resume_job(job_id=job.pk, actor=None)
    other = Call.objects.filter(job_id=job.pk).earliest("id")
    Call.objects.filter(pk=other.pk).update(sent_at=timezone.now())
    assert _codes() == []


def test_verify_answers_that_come_while_pausing_are_no_claims() -> None:
    job = make_job(shards=[ShardSpec(pending=1, inflight=1)])
    services.pause_job(job_id=job.pk, actor=None)
    assert Job.objects.get(pk=job.pk).status == JobStatus.PAUSING
    assert _codes() == []


def test_verify_resume_of_a_running_jobs_shards_is_no_start() -> None:
    """It changes no status: what was stopped before and started since is judged as ever."""
    job = make_job(shards=[ShardSpec(confirmed=2, pending=2), ShardSpec(pending=2)])
    _sent(job)
    job.shards.filter(ordinal=2).update(status="paused", reason="breaker")
    services.resume_job(job_id=job.pk, actor=None)
    STOPS["paused"](job)
    _event("job.resumed", job=job, ago=0, data={"shards": [2]})
    _claimed_now(job)
    assert _codes() == ["claimed_while_stopped"]


def test_verify_retry_that_reopens_a_job_is_a_start() -> None:
    job = make_job(status=JobStatus.COMPLETED, shards=[ShardSpec(confirmed=1, failed=1)])
    _event("job.completed", job=job, data={"from": "running", "reason": ""})
    _sent(job, ago=120)
    assert _codes() == []
    services.retry_failed(job_id=job.pk, actor=None)
    item = items_of(job, "confirmed")[0]
    Call.objects.filter(pk=item.call_id).update(sent_at=timezone.now())
    assert _codes() == []
