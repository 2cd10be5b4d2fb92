"""What a checkpoint shows before it is passed: the last stage beside all that was sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batches.domain.categories import category_info
from batches.domain.lifecycle import stages_passed_next
from batches.domain.states import PauseReason
from batches.domain.text import N_
from batches.models import Event, Job

from .failures import failures_by_category
from .job_page import progress_for


@dataclass(frozen=True, slots=True)
class StageRow:
    """One number; `here` is what the stage alone added to it, None where nobody noted it."""

    label: str
    so_far: int
    here: int | None
    #: a kind of failure, shown below the sum of all
    part: bool = False


@dataclass(frozen=True, slots=True)
class StageReport:
    """`coming` is the next stop after this one is confirmed, None if there is none.

    `room`: sends that the budget still allows, where it stops the job sooner; else None.
    """

    rows: Sequence[StageRow]
    coming: int | None
    room: int | None = None

    @property
    def noted(self) -> bool:
        """What the checkpoint before found is known, so that the stage can be told apart."""
        return all(row.here is not None for row in self.rows)

    @property
    def taken_back(self) -> bool:
        """Some number fell: earlier failures were retried, or earlier doubts found out."""
        return any(row.here is not None and row.here < 0 for row in self.rows)


def stage_report(job: Job) -> StageReport:
    """The numbers of this moment, and how they differ from the checkpoint before."""
    progress = progress_for(job)
    before = _tally_before(job)
    kinds = {row.category: row.count for row in failures_by_category(job, failed=progress.failed)}
    found = [
        _row(before, "confirmed", N_("已确认"), progress.confirmed),
        _row(before, "failed", N_("失败"), progress.failed),
    ]
    earlier: Mapping[str, int] = {} if before is None else before["categories"]
    found += [
        StageRow(
            category_info(kind).label,
            kinds.get(kind, 0),
            None if before is None else kinds.get(kind, 0) - earlier.get(kind, 0),
            part=True,
        )
        for kind in [*kinds, *(kind for kind in earlier if kind not in kinds)]
    ]
    found.append(_row(before, "in_doubt", N_("待核实"), progress.in_doubt))
    passed = stages_passed_next(job.stages, passed=job.stages_passed, used=job.budget_used)
    coming = next(iter(job.stages[passed:]), None)
    ahead = progress.pending if coming is None else coming - job.budget_used
    room = None if job.budget_limit is None else job.budget_limit - job.budget_used
    return StageReport(found, coming, room if room is not None and room < ahead else None)


def _row(before: Mapping[str, Any] | None, key: str, label: str, now: int) -> StageRow:
    return StageRow(label, now, None if before is None else now - before[key])


def _tally_before(job: Job) -> Mapping[str, Any] | None:
    """What the checkpoint before this one found; nothing was sent before the first.

    A stop at one checkpoint may be told of twice (terminated there, and resumed): the count of
    those passed tells them from the one before.
    """
    if not job.stages_passed:
        return {"confirmed": 0, "failed": 0, "in_doubt": 0, "categories": {}}
    event = (
        Event.objects.filter(
            job=job,
            kind="job.paused",
            data__reason=PauseReason.STAGE.value,
            data__tally__passed__lt=job.stages_passed,
        )
        .order_by("-id")
        .first()
    )
    return event.data["tally"] if event else None
