"""What outcomes do beyond their own item: stop a job, an account, for a person to look."""

from __future__ import annotations

import logging
import time
from datetime import datetime
from functools import partial
from typing import Any

from batches.domain.categories import Category
from batches.domain.decisions import Decision
from batches.domain.states import JobStatus, PauseReason
from batches.store.settle import Settled
from batches.store.trips import lose_credential, trip_job

from .sending import Flight
from .state import LaneState

log = logging.getLogger(__name__)

#: seconds for which the lane itself sends nothing more while the stop is being written
MEANWHILE = 5.0


def watch(state: LaneState, flight: Flight, settled: Settled) -> None:
    """Look at one answer; stop at once in memory what is about to be stopped in the database."""
    told = False
    for decision in settled.decisions:
        if decision.slow_down:
            continue  # a rate refusal is the pace's business
        if decision.category == Category.CREDENTIAL and not told:
            told = True  # one call, one account
            _account(state, flight, decision)
        elif decision.category == Category.PERMISSION:
            _job(state, flight, PauseReason.PERMISSION, decision)
        counts = decision.bad or decision.outcome == "accepted"
        if counts and flight.job.breaker.add(bad=decision.bad):
            _job(state, flight, PauseReason.BREAKER, decision)


def _account(state: LaneState, flight: Flight, decision: Decision) -> None:
    account, now = flight.account, time.monotonic()
    if account.stopped_until > now + MEANWHILE / 2:
        return  # being carried out
    account.stopped_until = now + MEANWHILE
    account.due = max(account.due, account.stopped_until)
    note = " ".join(filter(None, (decision.code, decision.message)))
    state.trips.append(partial(lose_credential, account.account_id, note=note))


def watch_minutes(state: LaneState, row: Any) -> None:
    """Look at a job's latest outcomes in the database: those of other lanes and turns count too.

    `row` is one of `lane_jobs`. Few outcomes a minute, or many lanes, would else never fill the
    window that one turn has in mind.
    """
    if row.status != JobStatus.RUNNING or row.judged < row.breaker_min_sample:
        return
    if row.bad >= row.breaker_ratio * row.judged:
        data = {"bad": row.bad, "sample": row.judged}
        _stop(state, row.id, PauseReason.BREAKER, data, since=row.breaker_from)


def _job(state: LaneState, flight: Flight, reason: PauseReason, decision: Decision) -> None:
    job = flight.job
    data = {
        "bad": job.breaker.bad,
        "sample": job.breaker.sample,
        "category": decision.category,
        "code": decision.code,
    }
    account_id = flight.account.account_id if reason is PauseReason.PERMISSION else None
    _stop(state, job.job_id, reason, data, account_id=account_id, since=job.breaker_from)


def _stop(
    state: LaneState,
    job_id: int,
    reason: PauseReason,
    data: dict[str, Any],
    *,
    account_id: int | None = None,
    since: datetime | None,
) -> None:
    now = time.monotonic()
    if state.blocked.get(job_id, 0.0) > now + MEANWHILE / 2:
        return  # being carried out
    state.blocked[job_id] = now + MEANWHILE
    log.warning("job %d is stopped: %s", job_id, reason)
    state.trips.append(
        partial(trip_job, job_id, reason=reason, data=data, account_id=account_id, since=since)
    )
