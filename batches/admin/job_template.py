"""Settings of an earlier job as the form of a new one: `?from=<job id>`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from django.utils import timezone

from batches.domain.breaker import Thresholds
from batches.domain.states import JobStatus
from batches.models import Job
from batches.services.limits import thresholds_of
from batches.services.submission_limits import ATTEMPTS, CALL_SIZE, NAME_MAX

#: if it never started, the new job takes its place and may keep its name
_OVER = frozenset({JobStatus.REJECTED, JobStatus.CANCELLED})
_NUMBERED = re.compile(r"(?P<stem>.*\S) \((?P<number>\d{1,4})\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Template:
    """The job that a form was filled from, and its fields by the names of the form."""

    job: Job
    values: Mapping[str, str]
    #: a scheduled start that is over by now is not taken along
    start_left_out: bool


def template_of(job: Job) -> Template:
    """What was chosen for `job`, all but its file and the reason of a rerun.

    A limit that stands at its default stays empty, as in a form that nobody filled in.
    """
    late = job.start_at is not None and job.start_at <= timezone.now()
    values = {
        "action": job.action,
        "name": _name(job),
        "budget": _text(job.budget_limit),
        "stages": ", ".join(map(str, job.stages)),
        "rate": _text(job.rate_limit_per_min),
        "bad_rows": job.bad_rows,
        "window_from": job.window_from.strftime("%H:%M") if job.window_from else "",
        "window_to": job.window_to.strftime("%H:%M") if job.window_to else "",
        "priority": _unless(job.priority, 0),
        "max_attempts": _unless(job.max_attempts, ATTEMPTS),
        "call_size": _unless(job.call_size, CALL_SIZE),
        **{f"{job.action}.{name}": str(value) for name, value in job.params.items()},
        **_breaker(thresholds_of(job)),
    }
    if job.start_at is not None and not late:
        values["start_at"] = timezone.localtime(job.start_at).strftime("%Y-%m-%dT%H:%M")
    return Template(job, values, start_left_out=late)


def _breaker(at: Thresholds) -> dict[str, str]:
    usual = Thresholds()
    return {
        "breaker_streak": _unless(at.streak, usual.streak),
        "breaker_ratio": _unless(at.ratio, usual.ratio, percent=True),
        "breaker_window": _unless(at.window, usual.window),
        "breaker_min_sample": _unless(at.min_sample, usual.min_sample),
        "breaker_shard_share": _unless(at.shard_share, usual.shard_share, percent=True),
    }


def _unless(value: float, usual: float, *, percent: bool = False) -> str:
    if value == usual:
        return ""
    return f"{round(value * 100, 4):g}" if percent else str(value)


def _text(value: int | None) -> str:
    return "" if value is None else str(value)


def _name(job: Job) -> str:
    """Empty where the name was made of date and file; numbered where two would be told apart."""
    file = job.upload.name if job.upload else ""
    made = f" {timezone.localdate(job.created_at).isoformat()} {file.rsplit('.', 1)[0] or file}"
    if file and job.name.endswith(made):
        return ""
    if job.started_at is None and job.status in _OVER:
        return job.name
    found = _NUMBERED.fullmatch(job.name)
    stem, number = (found["stem"], int(found["number"])) if found else (job.name, 1)
    ending = f" ({number + 1})"
    return stem[: NAME_MAX - len(ending)] + ending
