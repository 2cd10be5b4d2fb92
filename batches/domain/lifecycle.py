"""Which moves of a job happen by themselves."""

from __future__ import annotations

from collections.abc import Sequence
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
    #: pending items of shards that a lane may run
    runnable: int = 0
    shards: int = 0
    #: shards stopped by the breaker
    tripped: int = 0
    breaker_shard_share: float = 1.0
    #: seconds since the set start (or since the hours opened after it); None without one
    start_late: float | None = None
    #: nothing of the job was ever answered
    untouched: bool = False

    @property
    def breaker_open(self) -> bool:
        """Enough shards tripped to stop the job, or nothing but tripped ones is left."""
        if self.tripped == 0:
            return False
        share = self.tripped >= 2 and self.tripped >= self.breaker_shard_share * self.shards
        return share or (self.runnable == 0 and self.inflight == 0)


def stages_passed_next(stages: Sequence[int], *, passed: int, used: int) -> int:
    """How many checkpoints count as passed once the present one is confirmed.

    Refusals that came in meanwhile may have taken the sends (`used`) below the checkpoint again.
    """
    reached = sum(stage <= used for stage in stages)
    return min(len(stages), max(passed + 1, reached))


def _ended(tally: Tally) -> JobStatus:
    return JobStatus.VERIFYING if tally.submitted else JobStatus.COMPLETED


Move = tuple[JobStatus, str]


def _limit_reached(tally: Tally) -> PauseReason | None:
    """Budget or checkpoint used up; only when nothing is in flight, as a refusal returns it."""
    if tally.inflight:
        return None
    if tally.budget_limit is not None and tally.budget_used >= tally.budget_limit:
        return PauseReason.BUDGET
    if tally.stage_limit is not None and tally.budget_used >= tally.stage_limit:
        return PauseReason.STAGE
    return None


def _missed_start(tally: Tally, grace: float) -> bool:
    late = tally.start_late is not None and tally.start_late > grace
    return late and tally.untouched and not tally.inflight


def _from_running(tally: Tally, grace: float) -> Move | None:
    if tally.pending == 0:
        return _ended(tally), ""
    if tally.breaker_open:
        return (JobStatus.PAUSING if tally.inflight else JobStatus.PAUSED), PauseReason.BREAKER
    if _missed_start(tally, grace):
        return JobStatus.PAUSED, PauseReason.MISSED_START
    if reason := _limit_reached(tally):
        return JobStatus.PAUSED, reason
    return None


def _from_pausing(tally: Tally) -> Move | None:
    if tally.pending == 0:
        return _ended(tally), ""
    return (JobStatus.PAUSED, tally.pause_reason) if tally.inflight == 0 else None


def _from_verifying(tally: Tally) -> Move | None:
    if tally.pending > 0:
        return JobStatus.RUNNING, ""
    return (JobStatus.COMPLETED, "") if tally.submitted == 0 else None


def next_move(tally: Tally, *, start_grace: float = 900.0) -> Move | None:
    """The status a job moves to now, with its pause reason; None if it stays.

    A set start that was missed by more than `start_grace` seconds asks a person.
    """
    match tally.status:
        case JobStatus.RUNNING:
            return _from_running(tally, start_grace)
        case JobStatus.PAUSING:
            return _from_pausing(tally)
        case JobStatus.VERIFYING:
            return _from_verifying(tally)
        case JobStatus.CANCELLING if tally.pending == 0:
            return JobStatus.CANCELLED, ""
        case JobStatus.TERMINATING if tally.inflight == 0:
            return JobStatus.TERMINATED, ""
        case _:
            return None
