"""Which moves of a job happen by themselves."""

from __future__ import annotations

from dataclasses import dataclass

from .states import JobStatus, PauseReason


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums over a job's shards. `pending` includes the `inflight` items."""

    status: JobStatus
    pending: int
    submitted: int
    inflight: int
    budget_limit: int | None = None
    budget_used: int = 0
    stage_limit: int | None = None
    pause_reason: str = ""


def _ended(tally: Tally) -> JobStatus:
    return JobStatus.VERIFYING if tally.submitted else JobStatus.COMPLETED


def next_move(tally: Tally) -> tuple[JobStatus, str] | None:
    """The status a job moves to now, with its pause reason; None if it stays.

    Limits pause a job only when nothing is in flight: a refusal still to come returns its send.
    """
    match tally.status:
        case JobStatus.RUNNING:
            if tally.pending == 0:
                return _ended(tally), ""
            if tally.inflight == 0:
                if tally.budget_limit is not None and tally.budget_used >= tally.budget_limit:
                    return JobStatus.PAUSED, PauseReason.BUDGET
                if tally.stage_limit is not None and tally.budget_used >= tally.stage_limit:
                    return JobStatus.PAUSED, PauseReason.STAGE
        case JobStatus.PAUSING:
            if tally.pending == 0:
                return _ended(tally), ""
            if tally.inflight == 0:
                return JobStatus.PAUSED, tally.pause_reason
        case JobStatus.VERIFYING:
            if tally.pending > 0:
                return JobStatus.RUNNING, ""
            if tally.submitted == 0:
                return JobStatus.COMPLETED, ""
        case JobStatus.CANCELLING:
            if tally.pending == 0:
                return JobStatus.CANCELLED, ""
        case JobStatus.TERMINATING:
            if tally.inflight == 0:
                return JobStatus.TERMINATED, ""
        case _:
            pass
    return None
