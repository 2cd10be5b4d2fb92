"""The list of jobs: tabs with counts, search, keyset pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Count

from batches.domain.states import JobStatus
from batches.domain.text import N_
from batches.models import Job

from .progress import NO_PACE, Pace, Progress, Segment, pace_of, progress_of, segments

PAGE_SIZE = 25
J = JobStatus

#: tab → label, statuses; every status is under exactly one tab besides "all"
TABS: Mapping[str, tuple[str, tuple[JobStatus, ...]]] = {
    "": (N_("全部"), tuple(JobStatus)),
    "running": (
        N_("运行中"),
        (J.RUNNING, J.PAUSING, J.VERIFYING, J.CANCELLING, J.TERMINATING),
    ),
    "waiting": (N_("待确认"), (J.PREPARING, J.AWAITING, J.REJECTED)),
    "paused": (N_("已暂停"), (J.PAUSED, J.TERMINATED)),
    "completed": (N_("已完成"), (J.COMPLETED,)),
    "cancelled": (N_("已取消"), (J.CANCELLED,)),
}


@dataclass(frozen=True, slots=True)
class JobRow:
    """One line of the list."""

    job: Job
    progress: Progress
    pace: Pace
    segments: Sequence[Segment]


@dataclass(frozen=True, slots=True)
class JobPage:
    """A page of the list; `next_before` is the id to go on from, None at the end."""

    rows: Sequence[JobRow]
    next_before: int | None


@dataclass(frozen=True, slots=True)
class Tab:
    key: str
    label: str
    count: int


def tabs() -> list[Tab]:
    """Every tab with its number of jobs; an index-only scan of the status index."""
    by_status = dict(Job.objects.order_by().values_list("status").annotate(Count("id")))
    return [
        Tab(key, label, sum(by_status.get(status, 0) for status in statuses))
        for key, (label, statuses) in TABS.items()
    ]


def job_rows(jobs: Sequence[Job]) -> list[JobRow]:
    """Jobs with their numbers, in the order given."""
    ids = [job.pk for job in jobs]
    progress, pace = progress_of(ids), pace_of(ids)
    found = []
    for job in jobs:
        numbers = progress.get(job.pk, Progress(total=job.total, pending=job.total))
        found.append(JobRow(job, numbers, pace.get(job.pk, NO_PACE), segments(numbers)))
    return found


def job_page(*, tab: str = "", search: str = "", before: int | None = None) -> JobPage:
    """Newest first; `before` is the `next_before` of the page above."""
    statuses = TABS.get(tab, TABS[""])[1]
    found = Job.objects.select_related("created_by").order_by("-id")
    if tab:
        found = found.filter(status__in=statuses)
    if search:
        found = found.filter(name__icontains=search)
    if before is not None:
        found = found.filter(id__lt=before)
    jobs = list(found[: PAGE_SIZE + 1])
    more = len(jobs) > PAGE_SIZE
    jobs = jobs[:PAGE_SIZE]
    return JobPage(job_rows(jobs), jobs[-1].pk if more else None)
