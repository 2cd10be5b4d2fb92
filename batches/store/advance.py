"""Moves that happen by themselves: lost calls, finished, paused and cancelled jobs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import connection, transaction
from django.db.utils import OperationalError

from batches.domain.hours import first_allowed
from batches.domain.lifecycle import Tally, next_move
from batches.domain.states import JOB_AT_REST, JobStatus, PauseReason

from .events import add_event
from .queries import run_query

log = logging.getLogger(__name__)

ABANDON_CHUNK = 5_000
#: full chunks per pass, of all jobs together: no pass takes longer than a lane may for its end
ABANDON_STEPS = 20


def rescue_lost_calls() -> int:
    """Items in flight under a lane that is gone become in doubt. Returns the number of calls."""
    total = 0
    while True:
        with transaction.atomic():
            run_query("plan_by_index")
            lost = run_query("lost_calls")
            if lost:
                run_query("mark_lost", calls=[row["id"] for row in lost])
                for job_id in sorted({row["job_id"] for row in lost}):
                    count = sum(row["job_id"] == job_id for row in lost)
                    add_event(kind="job.calls_lost", job_id=job_id, data={"calls": count})
        total += len(lost)
        if len(lost) < 2000:
            return total


def _abandon(job_id: int, left: int) -> int:
    """Abandon up to `left` items of a cancelling job, one bounded step per transaction.

    Returns how many the pass may still abandon; the next pass goes on.
    """
    for shard in run_query("shards_to_abandon", job=job_id):
        while True:
            if left <= 0:
                return left
            with transaction.atomic():
                locked = run_query("lock_jobs", jobs=[job_id])
                if not locked or locked[0]["status"] != JobStatus.CANCELLING:
                    return left
                run_query("plan_by_index")
                done = run_query("abandon_chunk", shard=shard["id"], most=ABANDON_CHUNK)
            left -= done[0]["n"] if done else 0
            if not done or done[0]["n"] < ABANDON_CHUNK:
                break
    return left


def _tally(row: dict[str, Any]) -> Tally:
    return Tally(
        status=JobStatus(row["status"]),
        pending=row["pending"],
        submitted=row["submitted"],
        inflight=row["inflight"],
        budget_limit=row["budget_limit"],
        budget_used=row["budget_used"],
        stage_limit=row["stage_limit"],
        pause_reason=row["pause_reason"],
        runnable=row["runnable"],
        shards=row["shards"],
        tripped=row["tripped"],
        breaker_shard_share=row["breaker_shard_share"],
        start_late=_start_late(row),
        untouched=row["untouched"],
    )


def _start_late(row: dict[str, Any]) -> float | None:
    """Seconds since the job could first have begun: its start, or when its hours opened then."""
    if row["start_at"] is None:
        return None
    first = first_allowed(
        row["start_at"], row["window_from"], row["window_to"], ZoneInfo(settings.TIME_ZONE)
    )
    return float((row["now"] - first).total_seconds())


def _grace() -> float:
    return float(settings.MISSED_START_SECONDS)


def _advance(job_id: int) -> bool:
    """Move one job if it is due. Returns whether it moved."""
    if next_move(_tally(run_query("job_tally", job=job_id)[0]), start_grace=_grace()) is None:
        return False
    with transaction.atomic():
        # 1. lock, 2. count again under the lock, 3. move with a guard
        run_query("lock_jobs", jobs=[job_id])
        row = run_query("job_tally", job=job_id)[0]
        tally = _tally(row)
        move = next_move(tally, start_grace=_grace())
        if move is None:
            return False
        target, reason = move
        moved = run_query(
            "move_job",
            job=job_id,
            target=target.value,
            reason=str(reason),
            finished=target in JOB_AT_REST and target is not JobStatus.PAUSED,
            sources=[tally.status.value],
        )
        if not moved:
            return False
        if target is JobStatus.CANCELLED:
            run_query("cancel_shards", job=job_id)
        data: dict[str, Any] = {"from": tally.status.value, "reason": str(reason)}
        if reason == PauseReason.STAGE:
            data["tally"] = _stage_tally(job_id)
        add_event(kind=f"job.{target.value}", job_id=job_id, data=data)
    return True


def _stage_tally(job_id: int) -> dict[str, Any]:
    """What a checkpoint found so far; the next one's page shows the difference."""
    tally = run_query("stage_tally", job=job_id)[0]
    failed = run_query("stage_failures", job=job_id) if tally["failed"] else []
    return tally | {"categories": {row["category"]: row["n"] for row in failed}}


def advance_jobs(job_ids: Sequence[int] | None = None) -> int:
    """Advance these jobs, or all that may move. Returns how many moved.

    A deadlock or lost lock costs only this pass: the next one finds the same work. Nor does a
    job that cannot be judged at all keep the others.
    """
    ids = None if job_ids is None else list(job_ids)
    moved = 0
    left = ABANDON_STEPS * ABANDON_CHUNK
    for row in run_query("movable_jobs", jobs=ids):
        try:
            status = run_query("job_tally", job=row["id"])[0]["status"]
            if status == JobStatus.CANCELLING:
                left = _abandon(row["id"], left)
            while _advance(row["id"]):
                moved += 1
        except OperationalError as error:
            if connection.connection is None or connection.connection.closed:
                raise
            log.warning("job %s not advanced this time: %s", row["id"], error)
        except Exception:
            if connection.connection is None or connection.connection.closed:
                raise
            log.exception("job %s cannot be advanced", row["id"])
    return moved
