"""How far jobs are and how fast they go; from shard rows and minute sums, never from items."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from batches.domain.states import JobStatus
from batches.domain.text import N_
from batches.store.queries import run_query

#: a job that may still take or settle items by itself
MOVING = frozenset(
    {
        JobStatus.RUNNING,
        JobStatus.PAUSING,
        JobStatus.VERIFYING,
        JobStatus.CANCELLING,
        JobStatus.TERMINATING,
    }
)
#: minutes over which the achieved rate is taken
PACE_MINUTES = 3


@dataclass(frozen=True, slots=True)
class Progress:
    """People's numbers: in flight counts as submitted. The six parts sum to `total`."""

    total: int = 0
    pending: int = 0
    submitted: int = 0
    confirmed: int = 0
    failed: int = 0
    abandoned: int = 0
    in_doubt: int = 0
    inflight: int = 0
    last_advanced_at: datetime | None = None
    shards: int = 0

    @property
    def settled(self) -> int:
        """Tried to its end. What was given up unsent is no progress: 100 % means all was tried."""
        return self.confirmed + self.failed

    @property
    def underway(self) -> int:
        """Submitted and not in doubt: in flight, or accepted and not yet confirmed."""
        return self.submitted - self.in_doubt

    @property
    def percent(self) -> int:
        """Rounded down, so that 100 means done."""
        return self.settled * 100 // self.total if self.total else 0


def progress_of(job_ids: Iterable[int]) -> dict[int, Progress]:
    """Progress by job; a job without shards has no entry."""
    ids = list(job_ids)
    if not ids:
        return {}
    found = {}
    for row in run_query("job_progress", jobs=ids):
        job_id = row.pop("job_id")
        row["pending"] -= row["inflight"]
        row["submitted"] += row["inflight"]
        found[job_id] = Progress(**row)
    return found


@dataclass(frozen=True, slots=True)
class Pace:
    """Over the last minutes."""

    per_min: float
    sent: int
    failed: int
    settled: int

    @property
    def failed_percent(self) -> float | None:
        """None where nothing was settled."""
        return self.failed * 100 / self.settled if self.settled else None


NO_PACE = Pace(0.0, 0, 0, 0)


def pace_of(
    job_ids: Iterable[int], *, minutes: int = PACE_MINUTES, at_rest: bool = False
) -> dict[int, Pace]:
    """Pace by job; a job that sent nothing lately, or stands (unless `at_rest`), has no entry."""
    ids = list(job_ids)
    if not ids:
        return {}
    now = timezone.now()
    earliest = now.replace(second=0, microsecond=0) - timedelta(minutes=minutes)
    found = {}
    moving = None if at_rest else sorted(MOVING)
    for row in run_query("job_pace", jobs=ids, minutes=minutes, moving=moving):
        since = max(row["since"], earliest)
        elapsed = max((now - since).total_seconds(), 20.0) / 60
        found[row["job_id"]] = Pace(
            per_min=row["sent"] / elapsed,
            sent=row["sent"],
            failed=row["failed"],
            settled=row["confirmed"] + row["failed"],
        )
    return found


#: of the bar's width; 2 px of a phone's 330
_LEAST = 7
BAR_WIDTH = 1000
PART_LABELS: tuple[tuple[str, str], ...] = (
    ("confirmed", N_("已确认")),
    ("underway", N_("已提交")),
    ("in_doubt", N_("待核实")),
    ("failed", N_("失败")),
    ("abandoned", N_("已放弃")),
    ("pending", N_("待执行")),
)


@dataclass(frozen=True, slots=True)
class Segment:
    """One part of the stacked bar; `x` and `width` in thousandths of it."""

    key: str
    label: str
    count: int
    share: float
    x: int
    width: int


def segments(progress: Progress) -> list[Segment]:
    """The parts of the bar. Widths fill it exactly, and whatever is not zero can be seen."""
    counts = {key: int(getattr(progress, key)) for key, _ in PART_LABELS}
    widths = _widths(counts, progress.total)
    found, x = [], 0
    for key, label in PART_LABELS:
        share = counts[key] * 100 / progress.total if progress.total else 0.0
        found.append(Segment(key, label, counts[key], share, x, widths[key]))
        x += widths[key]
    return found


def _widths(counts: dict[str, int], total: int) -> dict[str, int]:
    if not total:
        return dict.fromkeys(counts, 0)
    widths = {
        key: max(_LEAST, round(count * BAR_WIDTH / total)) if count > 0 else 0
        for key, count in counts.items()
    }
    # the widest part pays for what the small ones were given
    widest = max(widths, key=lambda key: widths[key])
    widths[widest] += BAR_WIDTH - sum(widths.values())
    return widths


@dataclass(frozen=True, slots=True)
class Minute:
    """What came of one minute; `underway` was sent and still waits for its confirmation."""

    at: datetime
    confirmed: int = 0
    underway: int = 0
    in_doubt: int = 0
    failed: int = 0

    @property
    def total(self) -> int:
        return self.confirmed + self.underway + self.in_doubt + self.failed


def minute_rows(job_id: int, *, minutes: int = 60) -> list[Minute]:
    """The last minutes of a job, oldest first, empty ones too; the running minute is the last."""
    last = timezone.now().replace(second=0, microsecond=0)
    found = {
        row["minute"]: Minute(
            at=row["minute"],
            confirmed=row["confirmed"],
            underway=max(0, row["sent"] - row["confirmed"] - row["in_doubt"]),
            in_doubt=row["in_doubt"],
            failed=row["failed"],
        )
        for row in run_query("job_minutes", jobs=[job_id], minutes=minutes)
    }
    moments = [last - timedelta(minutes=back) for back in range(minutes - 1, -1, -1)]
    return [found.get(moment, Minute(moment)) for moment in moments]


def minutes_of(job_ids: Iterable[int], *, minutes: int = 30) -> dict[int, list[int]]:
    """Sends made in each of the last minutes, oldest first, by job; the running one is the last.

    Refused ones too, as in the pace.
    """
    ids = list(job_ids)
    if not ids:
        return {}
    last = timezone.now().replace(second=0, microsecond=0)
    found = {job_id: [0] * minutes for job_id in ids}
    for row in run_query("job_minutes", jobs=ids, minutes=minutes):
        back = round((last - row["minute"]).total_seconds() / 60)
        if 0 <= back < minutes:
            found[row["job_id"]][minutes - 1 - back] = row["made"]
    return found
