"""Everything the page of one job shows, and the cheap mark by which a poll sees no change."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from django.db.models import Max
from django.utils import timezone

from batches.domain.states import PauseReason, ShardStatus
from batches.domain.text import N_
from batches.models import Event, Job, Shard
from batches.store.queries import run_query

from .events import EventLine, event_lines
from .failures import CategoryCount, failures_by_category
from .ground import stuck_measure
from .progress import (
    MOVING,
    NO_PACE,
    PART_LABELS,
    Minute,
    Pace,
    Progress,
    Segment,
    minute_rows,
    pace_of,
    progress_of,
    segments,
)
from .why import Why, why_not_moving

SHARDS_SHOWN = 12
SHARDS_PER_PAGE = 50
EVENTS_SHOWN = 8
FAILED_MINUTES = 5
#: what changes by time alone (rates, holds, stuck) is shown at most this late
_ROUND = 15

#: kinds of shards that a list may be narrowed to
HAVING_LABELS: Mapping[str, str] = {
    "stuck": N_("卡住"),
    "paused": N_("已暂停"),
    **dict(PART_LABELS),
}
HAVING = tuple(HAVING_LABELS)


@dataclass(frozen=True, slots=True)
class ShardRow:
    """A shard with its account's present condition; people's numbers."""

    id: int
    ordinal: int
    account_id: int
    guid: str
    account_name: str
    is_active: bool
    health: str
    hold_until: datetime | None
    hold_reason: str
    throttle: float
    status: str
    reason: str
    stuck: bool
    last_advanced_at: datetime | None
    progress: Progress
    segments: Sequence[Segment]

    @property
    def held(self) -> bool:
        return self.hold_until is not None and self.hold_until > timezone.now()


@dataclass(frozen=True, slots=True)
class ShardPage:
    rows: Sequence[ShardRow]
    found: int
    page: int
    pages: int


def shard_page(
    job: Job, *, page: int = 1, size: int = SHARDS_PER_PAGE, having: str = ""
) -> ShardPage:
    """A page of a job's shards, stuck ones first.

    Paging by offset is right here: a job has thousands of shards at most, and their order
    changes while it runs.
    """
    page = min(max(1, page), 100_000)
    having = having if having in HAVING else ""
    found = _shard_rows(job, having=having, limit=size, offset=(page - 1) * size)
    total = found[0]["found"] if found else 0
    return ShardPage(
        rows=[_shard_row(row) for row in found],
        found=total,
        page=page,
        pages=max(1, -(-total // size)),
    )


def stopped_by_system(job: Job) -> bool:
    """Whether resuming the job as a whole would take shards up that stand."""
    stopped = Shard.objects.filter(job=job, status=ShardStatus.PAUSED)
    return stopped.exclude(reason=PauseReason.OPERATOR).exists()


def shard_row(job: Job, shard: Shard) -> ShardRow:
    """One shard of a job, as in the table."""
    return _shard_row(_shard_rows(job, ordinal=shard.ordinal, limit=1)[0])


def _shard_rows(
    job: Job, *, having: str = "", ordinal: int | None = None, limit: int, offset: int = 0
) -> list[dict[str, Any]]:
    return run_query(
        "job_shards",
        job=job.pk,
        jobs=[job.pk],
        **stuck_measure(),
        having=having,
        ordinal=ordinal,
        limit=limit,
        offset=offset,
    )


#: columns that a row of the table takes over as they are
_SAME = [field.name for field in fields(ShardRow) if field.name not in ("progress", "segments")]


def _shard_row(row: dict[str, Any]) -> ShardRow:
    flying = int(row["inflight"])
    progress = Progress(
        total=row["total"],
        pending=row["pending"] - flying,
        submitted=row["submitted"] + flying,
        confirmed=row["confirmed"],
        failed=row["failed"],
        abandoned=row["abandoned"],
        in_doubt=row["in_doubt"],
        inflight=flying,
    )
    return ShardRow(
        **{name: row[name] for name in _SAME}, progress=progress, segments=segments(progress)
    )


@dataclass(frozen=True, slots=True)
class Estimate:
    """Minutes until nothing is left to send; None where nobody can tell."""

    low: float | None
    high: float | None
    #: sends per minute that accounts and the job's own ceiling allow
    allowed: float


def estimate(job: Job, progress: Progress, pace: Pace = NO_PACE) -> Estimate:
    """From the slowest account alone, to the same account shared with every other job."""
    load = run_query("job_account_loads", job=job.pk)[0]
    allowed = float(load["rate"] or 0)
    low, high = load["alone"], load["shared"]
    if job.rate_limit_per_min:
        allowed = min(allowed, job.rate_limit_per_min)
        low = max(low or 0, progress.pending / job.rate_limit_per_min)
    if not progress.pending or low is None:
        return Estimate(None, None, allowed)
    high = max(low, high or 0)
    if pace.per_min:
        high = max(low, min(high, progress.pending / pace.per_min) if high > low else
                   progress.pending / pace.per_min)  # fmt: skip
    return Estimate(low, high, allowed)


def progress_for(job: Job) -> Progress:
    """The job's numbers; before its shards exist, everything is pending."""
    return progress_of([job.pk]).get(job.pk, Progress(total=job.total, pending=job.total))


def live_mark(job: Job, progress: Progress) -> str:
    """Changes with whatever the live part shows; costs two small queries."""
    last_event = Event.objects.filter(job=job).aggregate(last=Max("id"))["last"]
    beat = int(timezone.now().timestamp()) // (_ROUND if job.status in MOVING else 60)
    told = (job.version, job.status, job.budget_used, progress, last_event, beat, job.intake)
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class LiveJob:
    """What is polled."""

    job: Job
    mark: str
    why: Why
    progress: Progress
    segments: Sequence[Segment]
    pace: Pace
    recent: Pace
    estimate: Estimate
    minutes: Sequence[Minute]
    shards: ShardPage
    failures: Sequence[CategoryCount]
    events: Sequence[EventLine]

    @property
    def moving(self) -> bool:
        """Whether it has a pace at all."""
        return self.job.status in MOVING


def live_job(job: Job, *, progress: Progress | None = None, mark: str | None = None) -> LiveJob:
    """The live part of a job's page; about ten queries, none over items but the failures'."""
    progress = progress or progress_for(job)
    ids = [job.pk]
    pace = pace_of(ids).get(job.pk, NO_PACE)
    return LiveJob(
        job=job,
        mark=mark or live_mark(job, progress),
        why=why_not_moving(job),
        progress=progress,
        segments=segments(progress),
        pace=pace,
        recent=pace_of(ids, minutes=FAILED_MINUTES, at_rest=True).get(job.pk, NO_PACE),
        estimate=estimate(job, progress, pace),
        minutes=minute_rows(job.pk),
        shards=shard_page(job, size=SHARDS_SHOWN),
        failures=failures_by_category(job, failed=progress.failed),
        events=event_lines(job=job, limit=EVENTS_SHOWN),
    )
