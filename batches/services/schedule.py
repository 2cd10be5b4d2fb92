"""When a job may send: its set start and its allowed hours."""

from __future__ import annotations

from datetime import datetime, time
from typing import Any

from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext as _

from batches.domain.errors import InvalidInputError, WrongStateError
from batches.domain.limits import hours_problems, start_problems
from batches.domain.problems import Problem
from batches.domain.states import JobStatus, PauseReason
from batches.domain.text import N_
from batches.domain.verbs import VERBS, Verb
from batches.models import Job, Shard
from batches.store import jobs as store
from batches.store.events import Actor

from .acting import acting, fresh


def aware(at: datetime | None) -> datetime | None:
    """A time without an offset is meant in the installation's time zone.

    Raises InvalidInputError for years that a clock of another zone could not show.
    """
    if at is not None and not 1970 < at.year < 3000:
        raise InvalidInputError(
            Problem("start_out_of_range", N_("开始时间的年份要在 1971 到 2999 之间。"))
        )
    return timezone.make_aware(at) if at is not None and timezone.is_naive(at) else at


def set_hours(
    *,
    job_id: int,
    actor: Actor,
    window_from: time | None,
    window_to: time | None,
    reason: str = "",
    expected_version: int | None = None,
) -> Job:
    """Other allowed hours, in force within two seconds; both None: all day."""
    with acting(
        Verb.SET_HOURS, job_id=job_id, actor=actor, reason=reason, expected_version=expected_version
    ) as act:
        if problems := hours_problems(window_from, window_to):
            raise InvalidInputError(*problems)
        act.done(
            store.change_job(
                job_id=job_id,
                sources=VERBS[Verb.SET_HOURS].sources,
                window_from=window_from,
                window_to=window_to,
            )
        )
        act.log(
            "job.hours_set",
            before=_hours(act.job.window_from, act.job.window_to),
            after=_hours(window_from, window_to),
        )
    return fresh(job_id)


def set_start(
    *,
    job_id: int,
    actor: Actor,
    start_at: datetime | None,
    reason: str = "",
    expected_version: int | None = None,
) -> Job:
    """Another start for a job that has sent nothing yet; None: at once.

    A job that had missed its start waits for the new one, without a further word.
    """
    with acting(
        Verb.SET_START, job_id=job_id, actor=actor, reason=reason, expected_version=expected_version
    ) as act:
        start_at = aware(start_at)
        shown = None if start_at is None else timezone.localtime(start_at)
        if problems := start_problems(shown, now=timezone.now()):
            raise InvalidInputError(*problems)
        job = act.job
        _refuse_begun(job)
        before: dict[str, Any] = {"start_at": _iso(job.start_at)}
        after: dict[str, Any] = {"start_at": _iso(start_at)}
        if job.pause_reason == PauseReason.MISSED_START:
            act.done(store.resume_job(job_id=job_id, start_at=start_at))
            before |= {"status": job.status, "pause_reason": job.pause_reason}
            after |= {"status": JobStatus.RUNNING.value}
        else:
            act.done(
                store.change_job(
                    job_id=job_id, sources=VERBS[Verb.SET_START].sources, start_at=start_at
                )
            )
        act.log("job.start_set", before=before, after=after)
    return fresh(job_id)


def _refuse_begun(job: Job) -> None:
    begun = Q(last_advanced_at__isnull=False) | Q(bad_streak__gt=0)
    if (
        job.budget_used
        or store.in_flight(job.pk)
        or Shard.objects.filter(begun, job_id=job.pk).exists()
    ):
        raise WrongStateError(_("作业已经开始发送，不能再改开始时间；要停下来请用「暂停」。"))


def _hours(opens: time | None, closes: time | None) -> dict[str, str | None]:
    return {"window_from": _iso(opens), "window_to": _iso(closes)}


def _iso(value: datetime | time | None) -> str | None:
    return None if value is None else value.isoformat()
