"""Budget, rate, checkpoints, breaker and priority of a job, changed while it runs."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from django.utils.translation import gettext as _

from batches.domain.breaker import Thresholds
from batches.domain.errors import InvalidInputError, WrongStateError
from batches.domain.limits import (
    breaker_problems,
    budget_problems,
    priority_problems,
    rate_problems,
)
from batches.domain.problems import Problem
from batches.domain.states import JobStatus, PauseReason
from batches.domain.text import N_
from batches.domain.verbs import VERBS, Verb
from batches.models import Job
from batches.store import jobs as store
from batches.store.events import Actor

from .acting import acting, fresh
from .lifecycle import next_stages_passed
from .permissions import require
from .submission_limits import breaker_columns


def raise_budget(
    *,
    job_id: int,
    actor: Actor,
    to: int,
    reason: str,
    resume: bool = False,
    expected_version: int | None = None,
) -> Job:
    """Allow `to` sends in all. With `resume`, a job that this budget had stopped goes on."""
    with acting(
        Verb.RAISE_BUDGET,
        job_id=job_id,
        actor=actor,
        reason=reason,
        expected_version=expected_version,
    ) as act:
        job = act.job
        _check_budget(job, to)
        act.done(
            store.change_job(
                job_id=job_id, sources=VERBS[Verb.RAISE_BUDGET].sources, budget_limit=to
            )
        )
        act.log(
            "job.budget_raised",
            before={"budget_limit": job.budget_limit},
            after={"budget_limit": to},
            used=job.budget_used,
        )
        if resume and job.pause_reason == PauseReason.BUDGET:
            require(actor=actor, permission=VERBS[Verb.RESUME].permission)
            act.done(store.resume_job(job_id=job_id))
            act.log_move("job.resumed", JobStatus.RUNNING)
    return fresh(job_id)


def _check_budget(job: Job, to: int) -> None:
    """Raises `InvalidInputError`: no limit to raise, not above it, too large."""
    if job.budget_limit is None:
        raise InvalidInputError(
            Problem("budget_unlimited", N_("这个作业没有预算上限，不需要提高。"))
        )
    if to < job.budget_used:
        raise InvalidInputError(
            Problem(
                "budget_below_used",
                N_("预算 %(to)s 低于已经用掉的 %(used)s 条。"),
                {"to": to, "used": job.budget_used},
            )
        )
    if to <= job.budget_limit:
        raise InvalidInputError(
            Problem(
                "budget_not_raised",
                N_("新预算 %(to)s 必须高于现在的 %(limit)s。要停下来请用「暂停」。"),
                {"to": to, "limit": job.budget_limit},
            )
        )
    if problems := budget_problems(to):
        raise InvalidInputError(*problems)


def set_rate(
    *,
    job_id: int,
    actor: Actor,
    per_min: int | None,
    reason: str = "",
    expected_version: int | None = None,
) -> Job:
    """A new ceiling for the whole job, in force within two seconds; None lifts it."""
    with acting(
        Verb.SET_RATE, job_id=job_id, actor=actor, reason=reason, expected_version=expected_version
    ) as act:
        if problems := rate_problems(per_min):
            raise InvalidInputError(*problems)
        act.done(
            store.set_rate(job_id=job_id, sources=VERBS[Verb.SET_RATE].sources, per_min=per_min)
        )
        act.log(
            "job.rate_set",
            before={"rate_limit_per_min": act.job.rate_limit_per_min},
            after={"rate_limit_per_min": per_min},
        )
    return fresh(job_id)


def set_breaker(
    *,
    job_id: int,
    actor: Actor,
    streak: int | None = None,
    ratio: float | None = None,
    window: int | None = None,
    min_sample: int | None = None,
    shard_share: float | None = None,
    reason: str = "",
    expected_version: int | None = None,
) -> Job:
    """Other thresholds from now on; None keeps one. What has stopped already stays stopped."""
    given: dict[str, Any] = {
        "streak": streak,
        "ratio": ratio,
        "window": window,
        "min_sample": min_sample,
        "shard_share": shard_share,
    }
    with acting(
        Verb.SET_BREAKER,
        job_id=job_id,
        actor=actor,
        reason=reason,
        expected_version=expected_version,
    ) as act:
        changes = {name: value for name, value in given.items() if value is not None}
        if not changes:
            raise InvalidInputError(
                Problem("breaker_nothing", N_("请至少填写一项熔断条件；不改的可以留空。"))
            )
        before = thresholds_of(act.job)
        after = replace(before, **changes)
        if problems := breaker_problems(after):
            raise InvalidInputError(*problems)
        act.done(
            store.change_job(
                job_id=job_id, sources=VERBS[Verb.SET_BREAKER].sources, **breaker_columns(after)
            )
        )
        act.log("job.breaker_set", before=asdict(before), after=asdict(after))
    return fresh(job_id)


def thresholds_of(job: Job) -> Thresholds:
    """The breaker of a job as it is set."""
    return Thresholds(
        streak=job.breaker_streak,
        ratio=job.breaker_ratio,
        window=job.breaker_window,
        min_sample=job.breaker_min_sample,
        shard_share=job.breaker_shard_share,
    )


def set_priority(
    *,
    job_id: int,
    actor: Actor,
    priority: int,
    reason: str = "",
    expected_version: int | None = None,
) -> Job:
    """Which job of an account goes first, in force within two seconds; the highest wins."""
    with acting(
        Verb.SET_PRIORITY,
        job_id=job_id,
        actor=actor,
        reason=reason,
        expected_version=expected_version,
    ) as act:
        if problems := priority_problems(priority):
            raise InvalidInputError(*problems)
        act.done(
            store.change_job(
                job_id=job_id, sources=VERBS[Verb.SET_PRIORITY].sources, priority=priority
            )
        )
        act.log(
            "job.priority_set",
            before={"priority": act.job.priority},
            after={"priority": priority},
        )
    return fresh(job_id)


def confirm_stage(
    *, job_id: int, actor: Actor, reason: str = "", expected_version: int | None = None
) -> Job:
    """A person has looked at the result so far: on to the next checkpoint."""
    with acting(
        Verb.CONFIRM_STAGE,
        job_id=job_id,
        actor=actor,
        reason=reason,
        expected_version=expected_version,
    ) as act:
        job = act.job
        if job.pause_reason != PauseReason.STAGE:
            raise WrongStateError(_("作业没有停在放量检查点，没有要确认的。"))
        passed = next_stages_passed(job)
        act.done(store.resume_job(job_id=job_id, stages_passed=passed))
        act.log_move(
            "job.stage_confirmed", JobStatus.RUNNING, stage=job.stages[passed - 1], passed=passed
        )
    return fresh(job_id)
