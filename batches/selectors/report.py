"""The report of one job: the JSON that tools outside rely on, and the counts behind it."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from batches.domain.errors import InvalidInputError
from batches.domain.problems import Problem
from batches.domain.states import JobStatus
from batches.domain.text import N_
from batches.models import Job
from batches.store.queries import run_query

from .counts import Counts, job_counts
from .why import why_not_moving

__all__ = ["Counts", "achieved_per_min", "job_counts", "job_report"]

#: full minutes of the past over which a running job's rate is taken
RATE_MINUTES = 5
_MINUTE = timedelta(minutes=1)


def job_report(job_id: int, *, created: bool = False) -> dict[str, Any]:
    """The report as JSON-ready data. Raises `InvalidInputError` for an unknown job."""
    job = Job.objects.filter(pk=job_id).first()
    if job is None:
        raise InvalidInputError(
            Problem("unknown_job", N_("没有编号为 %(id)s 的作业。"), {"id": job_id})
        )
    shards = run_query("report_shards", job=job_id)
    sums = {
        name: sum(shard[name] for shard in shards)
        for name in (field.name for field in fields(Counts))
    }
    return {
        "id": job.pk,
        "name": job.name,
        "status": job.status,
        "reason": job.pause_reason,
        "created": created,
        "items": Counts.from_row(sums).as_json(),
        "failures": run_query("report_failures", job=job_id),
        "rejected_rows": job.rejected_rows,
        "budget": {"limit": job.budget_limit, "used": job.budget_used},
        "rate": {
            "limit_per_min": job.rate_limit_per_min,
            "achieved_per_min": round(achieved_per_min(job), 1),
        },
        "shards": [_shard(row) for row in shards],
        "created_at": _iso(job.created_at),
        "started_at": _iso(job.started_at),
        "finished_at": _iso(job.finished_at),
        "why": str(why_not_moving(job)),
    }


def _shard(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "ordinal": row["ordinal"],
        "account": row["account"],
        "status": row["status"],
        "reason": row["reason"],
        "cursor": row["cursor"],
        "last_advanced_at": _iso(row["last_advanced_at"]),
        "items": Counts.from_row(row).as_json(),
    }


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


#: not `verifying`: it sends nothing any more, and its rate is that of its active minutes
_MOVING = {JobStatus.RUNNING, JobStatus.PAUSING, JobStatus.CANCELLING, JobStatus.TERMINATING}


def achieved_per_min(job: Job, *, now: datetime | None = None) -> float:
    """Sends per minute: over the last minutes while a job moves, over its active minutes after.

    A minute without a send is not active. The first and the last minute count with the part
    that lies between the job's start and now (or its end).
    """
    if job.started_at is None:
        return 0.0
    now = now or timezone.now()
    if JobStatus(job.status) not in _MOVING:
        return _per_active_minute(job, until=job.finished_at or now)
    since = now.replace(second=0, microsecond=0) - RATE_MINUTES * _MINUTE
    begin = max(since, job.started_at)
    sent = sum(row["sent"] for row in run_query("report_minutes", job=job.pk, since=since))
    return float(sent) / _minutes(now - begin)


def _per_active_minute(job: Job, *, until: datetime) -> float:
    assert job.started_at is not None
    sent, active = 0, timedelta()
    for row in run_query("report_minutes", job=job.pk, since=None):
        begin = max(row["minute"], job.started_at)
        end = min(row["minute"] + _MINUTE, until)
        sent += row["sent"]
        active += max(end - begin, timedelta())
    return sent / _minutes(active) if sent else 0.0


def _minutes(span: timedelta) -> float:
    """At least a second, so that the first answers of a job do not look like a flood."""
    return max(span.total_seconds(), 1.0) / 60
