"""The list of jobs: tabs with counts, search, keyset pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Count, F, Q

from batches.domain.states import JobStatus, PauseReason
from batches.domain.text import N_
from batches.models import Job

from .progress import NO_PACE, Pace, Progress, Segment, pace_of, progress_of, segments
from .why import Why, why_each

PAGE_SIZE = 25
J = JobStatus

#: tab → label, statuses; every status is under exactly one of these besides "all"
TABS: Mapping[str, tuple[str, tuple[JobStatus, ...]]] = {
    "": (N_("全部"), tuple(JobStatus)),
    "running": (
        N_("运行中"),
        (J.RUNNING, J.PAUSING, J.VERIFYING, J.CANCELLING, J.TERMINATING),
    ),
    "waiting": (N_("导入与待确认"), (J.PREPARING, J.AWAITING, J.REJECTED)),
    "paused": (N_("已暂停或终止"), (J.PAUSED, J.TERMINATED)),
    "completed": (N_("已完成"), (J.COMPLETED,)),
    "cancelled": (N_("已取消"), (J.CANCELLED,)),
}


#: the tab of those whose budget is used up, or nearly
BUDGET_TAB = "budget"
#: so much of a budget used is a warning: somebody has to decide before it is all gone
BUDGET_WARN_SHARE = 0.9
#: a job that takes, or may take again, further items; afterwards its budget matters no more
_SPENDING = (J.RUNNING, J.PAUSING, J.PAUSED)


def budget_alert() -> Q:
    """Jobs that stand still for their budget, or soon will."""
    return Q(status__in=_SPENDING) & (
        Q(pause_reason=PauseReason.BUDGET)
        | Q(budget_limit__isnull=False, budget_used__gte=F("budget_limit") * BUDGET_WARN_SHARE)
    )


def budget_alerts() -> int:
    """How many jobs the budget tab lists; found by the index over statuses."""
    return Job.objects.filter(budget_alert()).count()


@dataclass(frozen=True, slots=True)
class JobRow:
    """One line of the list."""

    job: Job
    progress: Progress
    pace: Pace
    segments: Sequence[Segment]
    #: of one that is under way or stands; None where the status says it all
    why: Why | None = None


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
    """Every tab with its number of jobs; the statuses by an index-only scan of their index."""
    by_status = dict(Job.objects.order_by().values_list("status").annotate(Count("id")))
    found = [
        Tab(key, label, sum(by_status.get(status, 0) for status in statuses))
        for key, (label, statuses) in TABS.items()
    ]
    return [*found, Tab(BUDGET_TAB, N_("预算告警"), budget_alerts())]


#: what the status alone says enough about, or the row's other words
_SAYS_ITSELF = frozenset({J.PREPARING, J.AWAITING, J.REJECTED, J.COMPLETED, J.CANCELLED})


def job_rows(jobs: Sequence[Job], *, with_why: bool = False) -> list[JobRow]:
    """Jobs with their numbers, in the order given."""
    ids = [job.pk for job in jobs]
    progress, pace = progress_of(ids), pace_of(ids)
    asked = [job for job in jobs if with_why and job.status not in _SAYS_ITSELF]
    whys = why_each(asked, progress=progress)
    found = []
    for job in jobs:
        numbers = progress.get(job.pk, Progress(total=job.total, pending=job.total))
        found.append(
            JobRow(job, numbers, pace.get(job.pk, NO_PACE), segments(numbers), whys.get(job.pk))
        )
    return found


def job_page(*, tab: str = "", search: str = "", before: int | None = None) -> JobPage:
    """Newest first; `before` is the `next_before` of the page above."""
    found = Job.objects.select_related("created_by").order_by("-id")
    if tab == BUDGET_TAB:
        found = found.filter(budget_alert())
    elif tab:
        found = found.filter(status__in=TABS[tab][1])
    if search:
        found = found.filter(name__icontains=search)
    if before is not None:
        found = found.filter(id__lt=before)
    jobs = list(found[: PAGE_SIZE + 1])
    more = len(jobs) > PAGE_SIZE
    jobs = jobs[:PAGE_SIZE]
    return JobPage(job_rows(jobs, with_why=True), jobs[-1].pk if more else None)
