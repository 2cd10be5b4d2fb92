"""Single items: those of a shard, what happened to one, and what waits for a finding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Sum
from django.utils import timezone

from batches.domain.states import ItemState
from batches.models import Call, Item, Job, Shard
from batches.store.queries import run_query

PAGE_SIZE = 50
#: most jobs with doubts to choose from
JOBS_LISTED = 200


@dataclass(frozen=True, slots=True)
class ShardItems:
    """`next_after` is the `seq` to go on from, None at the end."""

    items: Sequence[Item]
    next_after: int | None


#: what a list may be narrowed to; the parts of the bar
STATES = ("", "pending", "underway", "in_doubt", "confirmed", "failed", "abandoned")


def shard_items(shard: Shard, *, part: str = "", after: int = 0) -> ShardItems:
    """Items of one shard in file order: few enough to sort, whatever the job's size.

    Not filtered by job: the unique index on (shard, target) is then the way in.
    """
    found = Item.objects.filter(shard_id=shard.pk, seq__gt=after)
    match part:
        case "underway":
            found = found.filter(state=ItemState.SUBMITTED, in_doubt_at=None)
        case "in_doubt":
            found = found.filter(in_doubt_at__isnull=False)
        case "":
            pass
        case state:
            found = found.filter(state=state)
    items = list(found.order_by("seq")[: PAGE_SIZE + 1])
    more = len(items) > PAGE_SIZE
    items = items[:PAGE_SIZE]
    return ShardItems(items, items[-1].seq if more else None)


def calls_of(item: Item) -> list[Call]:
    """The requests that carried the item, oldest first; of very many, the latest."""
    found = Call.objects.filter(shard_id=item.shard_id, item_ids__contains=[item.pk])
    return list(found.order_by("-id")[:PAGE_SIZE])[::-1]


@dataclass(frozen=True, slots=True)
class Doubt:
    """An item that waits for a finding: our record beside what the gateway answered."""

    id: int
    job_id: int
    job_name: str
    shard_ordinal: int
    account: str
    row_no: int
    target: str
    since: datetime
    submitted_at: datetime
    category: str | None
    msg_id: str | None
    call_id: int | None
    http_status: int | None
    call_message: str | None

    @property
    def overdue(self) -> bool:
        return timezone.now() - self.since > timedelta(seconds=settings.RECONCILE_SLA_SECONDS)


@dataclass(frozen=True, slots=True)
class DoubtPage:
    """Oldest first; `next_after` is the cursor to go on from, '' at the end."""

    items: Sequence[Doubt]
    next_after: str


def doubt_page(*, job_id: int | None = None, kind: str = "in_doubt", after: str = "") -> DoubtPage:
    """Items in doubt (or, of one job, accepted and unconfirmed ones), by age.

    Each job's oldest come from its own partial index; the page is merged from them.
    """
    at, item_id = _cursor(after)
    name = "doubts" if kind == "in_doubt" else "unconfirmed"
    found = run_query(name, job=job_id, at=at, item=item_id, limit=PAGE_SIZE + 1)
    more = len(found) > PAGE_SIZE
    page = [Doubt(**row) for row in found[:PAGE_SIZE]]
    last = page[-1] if more else None
    return DoubtPage(page, f"{last.since.isoformat()}~{last.id}" if last else "")


def _cursor(text: str) -> tuple[datetime | None, int]:
    """A cursor out of an address; anything else is the beginning."""
    at, _, item_id = text.partition("~")
    try:
        return datetime.fromisoformat(at), int(item_id)
    except ValueError:
        return None, 0


@dataclass(frozen=True, slots=True)
class DoubtfulJob:
    job: Job
    in_doubt: int


@dataclass(frozen=True, slots=True)
class DoubtfulJobs:
    """Jobs with something in doubt, most first; `total` items over all, `more` jobs not listed."""

    listed: Sequence[DoubtfulJob]
    total: int
    more: int


def doubtful_jobs(*, chosen: Job | None = None) -> DoubtfulJobs:
    """The jobs to choose from; the one that is chosen in any case."""
    found = run_query("doubtful_jobs", most=JOBS_LISTED)
    counts = {row["job_id"]: row["in_doubt"] for row in found}
    jobs = Job.objects.in_bulk(counts)
    listed = [DoubtfulJob(jobs[job_id], n) for job_id, n in counts.items() if job_id in jobs]
    if chosen is not None and chosen.pk not in counts:
        doubts = Shard.objects.filter(job=chosen, in_doubt__gt=0).aggregate(n=Sum("in_doubt"))
        listed.append(DoubtfulJob(chosen, doubts["n"] or 0))
    first = found[0] if found else {"total": 0, "jobs": 0}
    doubtful = sum(row.in_doubt > 0 for row in listed)
    return DoubtfulJobs(listed, first["total"], first["jobs"] - doubtful)


def unconfirmed_total(job: Job) -> int:
    """Of one job: accepted by the gateway and not yet confirmed."""
    found: list[dict[str, Any]] = run_query("job_progress", jobs=[job.pk])
    return sum(row["submitted"] - row["in_doubt"] for row in found)
