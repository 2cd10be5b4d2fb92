"""Every verb in every state: it works or it is refused, and a refusal changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from batches.domain.errors import InvalidInputError, NotAllowedError, WrongStateError
from batches.domain.states import JOB_ARROWS, JOB_LABELS, JobStatus, PauseReason
from batches.domain.verbs import VERBS, Verb
from batches.models import Event, Job
from batches.services import jobs
from batches.services.reconcile import mark_items
from tests.factories import ShardSpec, items_of, make_job, make_user

pytestmark = pytest.mark.django_db


def _reconcile(*, job_id: int, actor: Any, reason: str = "查过") -> Job:
    ids = [item.pk for item in items_of(Job.objects.get(pk=job_id), "submitted")]
    return mark_items(job_id=job_id, item_ids=ids, delivered=True, actor=actor, reason=reason).job


ACTS: dict[Verb, Callable[..., Job]] = {
    Verb.CONFIRM: jobs.confirm_job,
    Verb.PAUSE: jobs.pause_job,
    Verb.RESUME: jobs.resume_job,
    Verb.CONFIRM_STAGE: jobs.confirm_stage,
    Verb.RETRY_FAILED: jobs.retry_failed,
    Verb.RAISE_BUDGET: lambda **words: jobs.raise_budget(to=500, **words),
    Verb.SET_RATE: lambda **words: jobs.set_rate(per_min=30, **words),
    Verb.SET_HOURS: lambda **words: jobs.set_hours(window_from=None, window_to=None, **words),
    Verb.SET_START: lambda **words: jobs.set_start(start_at=None, **words),
    Verb.SET_BREAKER: lambda **words: jobs.set_breaker(streak=4, **words),
    Verb.SET_PRIORITY: lambda **words: jobs.set_priority(priority=5, **words),
    Verb.PAUSE_SHARD: lambda **words: jobs.pause_shard(ordinal=1, **words),
    Verb.RESUME_SHARD: lambda **words: jobs.resume_shard(ordinal=2, **words),
    Verb.CANCEL: jobs.cancel_job,
    Verb.TERMINATE: jobs.terminate_job,
    Verb.RECONCILE: _reconcile,
}
#: verbs that take no version, because no page depends on one
UNVERSIONED = {Verb.RECONCILE}


def _job(verb: Verb, status: JobStatus) -> Job:
    """A job in which nothing but the status stands in the verb's way."""
    reason = ""
    if status in (JobStatus.PAUSED, JobStatus.PAUSING):
        reason = PauseReason.STAGE if verb is Verb.CONFIRM_STAGE else PauseReason.OPERATOR
    accepted = int(verb is Verb.RECONCILE)
    # what has been tried cannot be given another start
    failed = int(verb is not Verb.SET_START)
    specs = [
        ShardSpec(pending=2, failed=failed, accepted=accepted, status="running"),
        ShardSpec(pending=1, status="paused", reason="operator"),
    ]
    return make_job(status=status, shards=specs, pause_reason=reason, budget_limit=100, stages=[3])


def _act(verb: Verb, job: Job, *, actor: Any = None) -> Job:
    words: dict[str, Any] = {"job_id": job.pk, "actor": actor}
    if VERBS[verb].needs_reason:
        words["reason"] = "客户要求"
    return ACTS[verb](**words)


def _snapshot(job: Job) -> tuple[Any, ...]:
    rows = [
        list(Job.objects.filter(pk=job.pk).values()),
        list(job.shards.order_by("ordinal").values()),
        [(item.pk, item.state) for item in items_of(job)],
        Event.objects.count(),
    ]
    return tuple(rows)


@pytest.mark.parametrize(("verb", "status"), list(product(Verb, JobStatus)))
def test_verb_in_any_state_works_or_changes_nothing(verb: Verb, status: JobStatus) -> None:
    job = _job(verb, status)
    before = _snapshot(job)
    if status not in VERBS[verb].sources:
        with pytest.raises(WrongStateError) as refused:
            _act(verb, job)
        assert JOB_LABELS[status] in str(refused.value)
        assert VERBS[verb].label in str(refused.value)
        assert _snapshot(job) == before
        return
    fresh = _act(verb, job)
    assert fresh.status == status or JobStatus(fresh.status) in JOB_ARROWS[status]
    assert fresh.version == job.version + (verb not in UNVERSIONED)
    event = Event.objects.filter(job=job).latest("id")
    assert (event.actor, event.actor_name) == (None, "")


@pytest.mark.parametrize("verb", list(Verb))
def test_verb_without_its_permission_is_not_allowed(verb: Verb) -> None:
    job = _job(verb, min(VERBS[verb].sources))
    others = {info.permission.partition(".")[2] for info in VERBS.values()}
    others.discard(VERBS[verb].permission.partition(".")[2])
    before = _snapshot(job)
    with pytest.raises(NotAllowedError, match="您没有权限"):
        _act(verb, job, actor=make_user(*others))
    assert _snapshot(job) == before


@pytest.mark.parametrize("verb", list(Verb))
def test_verb_with_its_permission_alone_names_the_person(verb: Verb) -> None:
    job = _job(verb, min(VERBS[verb].sources))
    actor = make_user(VERBS[verb].permission.partition(".")[2], last_name="李", first_name="雷")
    _act(verb, job, actor=actor)
    event = Event.objects.filter(job=job).latest("id")
    assert (event.actor, event.actor_name) == (actor, "雷 李")


def test_verb_by_a_locked_out_person_is_not_allowed() -> None:
    job = make_job()
    with pytest.raises(NotAllowedError):
        jobs.pause_job(job_id=job.pk, actor=make_user("operate_job", is_active=False))


@pytest.mark.parametrize("verb", [verb for verb, info in VERBS.items() if info.needs_reason])
@pytest.mark.parametrize("reason", ["", "  \n", "\x00", "长" * 301])
def test_verb_with_an_unusable_reason_is_refused(verb: Verb, reason: str) -> None:
    job = _job(verb, min(VERBS[verb].sources))
    before = _snapshot(job)
    with pytest.raises(InvalidInputError, match="原因"):
        ACTS[verb](job_id=job.pk, actor=None, reason=reason)
    assert _snapshot(job) == before


@pytest.mark.parametrize("verb", [verb for verb in Verb if verb is not Verb.RECONCILE])
def test_verb_on_an_unknown_job_says_so(verb: Verb) -> None:
    with pytest.raises(InvalidInputError, match="没有编号为 987654321 的作业"):
        _act(verb, Job(pk=987654321))


def test_reason_is_kept_without_blanks_around() -> None:
    job = make_job()
    jobs.pause_job(job_id=job.pk, actor=None, reason="  模板\x00写错了 ")
    assert Event.objects.get(job=job).reason == "模板写错了"


def test_reason_of_300_characters_is_kept_whole() -> None:
    job = make_job()
    jobs.pause_job(job_id=job.pk, actor=None, reason="长" * 300)
    assert Event.objects.get(job=job).reason == "长" * 300
