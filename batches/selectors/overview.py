"""The front page: what runs, what needs a person, and why."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Case, Exists, OuterRef, Q, When
from django.utils import timezone

from batches.domain.states import JobStatus
from batches.models import Alert, Job, Shard
from batches.store.queries import run_query

from .ground import standing_of
from .jobs import JobRow, budget_alerts, job_rows
from .progress import minutes_of
from .why import Why, why_each

MAX_LINES = 12
MAX_CARDS = 12
#: a refused file needs a person, but not for ever
_REJECTED_FOR = timedelta(days=3)
#: nor does what a terminated job has left, which a person may still go on with
_TERMINATED_FOR = timedelta(days=3)

J = JobStatus
#: many new uploads must not push a stopped job off the page
_STOPPED_FIRST = Case(When(status__in=[J.PAUSED, J.TERMINATED], then=0), default=1)
ACTIVE = (J.RUNNING, J.PAUSING, J.VERIFYING, J.CANCELLING, J.TERMINATING)


@dataclass(frozen=True, slots=True)
class NavCounts:
    running: int
    in_doubt: int
    alerts: int


def nav_counts() -> NavCounts:
    """The numbers beside the navigation; one statement."""
    return NavCounts(**run_query("nav_counts")[0])


@dataclass(frozen=True, slots=True)
class Attention:
    """One thing that waits for a person: why it does not move, and what to do."""

    job: Job
    why: Why
    stuck: int = 0


@dataclass(frozen=True, slots=True)
class Card:
    row: JobRow
    minutes: Sequence[int]
    why: Why


@dataclass(frozen=True, slots=True)
class Overview:
    running: int
    attention: int
    stuck: int
    in_doubt: int
    budget: int
    lines: Sequence[Attention]
    cards: Sequence[Card]
    alerts: Sequence[Alert]

    @property
    def mark(self) -> str:
        """Changes with whatever the page shows."""
        told = (
            (self.running, self.attention, self.stuck, self.in_doubt, self.budget),
            [(line.job.pk, line.job.version, line.why.code, line.stuck) for line in self.lines],
            [
                (card.row.job.version, card.row.progress, card.minutes, card.why.code)
                for card in self.cards
            ],
            [alert.pk for alert in self.alerts],
        )
        return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


def _needs_person() -> Q:
    return (
        Q(status__in=[J.PAUSED, J.AWAITING])
        | Q(status=J.REJECTED, created_at__gt=timezone.now() - _REJECTED_FOR)
        | Q(Exists(Shard.objects.filter(job=OuterRef("pk"), in_doubt__gt=0)), status=J.TERMINATED)
        | Q(
            Exists(Shard.objects.filter(job=OuterRef("pk"), pending__gt=0)),
            status=J.TERMINATED,
            finished_at__gt=timezone.now() - _TERMINATED_FOR,
        )
    )


def overview() -> Overview:
    """Everything on the front page; the number of queries does not depend on items."""
    counts = nav_counts()
    standing = standing_of(None)
    stuck = {job_id: row["stuck"] for job_id, row in standing.items() if row["stuck"]}
    waiting = Job.objects.filter(_needs_person())
    running = list(
        Job.objects.filter(status__in=ACTIVE)
        .select_related("created_by")
        .order_by("-id")[:MAX_CARDS]
    )
    # stuck ones too that are too old for a card
    looked_at = {job.pk: job for job in running}
    looked_at |= Job.objects.in_bulk(sorted(set(stuck) - set(looked_at))[-MAX_LINES:])
    whys = why_each(looked_at.values(), standing=standing)
    moving = [Attention(job, whys[job.pk], stuck.get(job.pk, 0)) for job in looked_at.values()]
    lines = [line for line in moving if line.stuck or line.why.level in ("warn", "error")]
    lines.sort(key=lambda line: -line.stuck)
    total = waiting.count() + len(lines)
    stopped = list(waiting.order_by(_STOPPED_FIRST, "-id")[: max(0, MAX_LINES - len(lines))])
    stopped_whys = why_each(stopped)
    lines += [Attention(job, stopped_whys[job.pk]) for job in stopped]
    minutes = minutes_of([job.pk for job in running])
    return Overview(
        running=counts.running,
        attention=total,
        stuck=len(stuck),
        in_doubt=counts.in_doubt,
        budget=budget_alerts(),
        lines=lines,
        cards=[Card(row, minutes[row.job.pk], whys[row.job.pk]) for row in job_rows(running)],
        alerts=list(
            Alert.objects.filter(closed_at=None)
            .select_related("job", "account")
            .order_by("-id")[:5]
        ),
    )
