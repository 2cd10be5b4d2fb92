"""RQ entry points; thin."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable

from django.conf import settings
from django.db import close_old_connections, connection
from redis.exceptions import RedisError

from batches.engine.alert import deliver_alerts
from batches.engine.ensure import ensure_intakes, ensure_lanes
from batches.engine.lane import Turn, TurnResult
from batches.engine.memory import few_collections
from batches.engine.state import TurnOptions
from batches.engine.watch import watch
from batches.store.advance import advance_jobs, rescue_lost_calls
from batches.store.ensure import prune_lanes
from batches.worker import LaneWorker

log = logging.getLogger(__name__)


def run_turn(turn: Turn) -> TurnResult:
    """Run a turn on the fastest loop there is."""
    with few_collections():
        if sys.platform == "win32":
            return asyncio.run(turn.run())
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(turn.run())


def lane_turn() -> str:
    """One turn of a lane; afterwards the next one is enqueued if work remains."""
    worker = LaneWorker.current
    options = TurnOptions(
        turn=float(settings.LANE_TURN_SECONDS), lease=float(settings.LANE_LEASE_SECONDS)
    )
    close_old_connections()
    try:
        result = run_turn(
            Turn(
                worker=worker.name if worker else "",
                should_stop=LaneWorker.asked_to_stop,
                options=options,
            )
        )
    finally:
        try:
            ensure_lanes()
        except RedisError as error:
            log.warning("next turn not enqueued, maintenance will: %s", error)
        connection.close()
    return f"{result.reason}, {result.sent} sent"


def intake(job_id: int) -> None:
    """Read, check and load the file of a job."""
    from batches.services.submissions import run_intake

    close_old_connections()
    try:
        run_intake(job_id)
    finally:
        connection.close()


def run_periodic() -> None:
    """What must happen even if no lane lives; called every few seconds.

    Raises `ExceptionGroup`, after all steps have had their turn, with what failed in them.
    """
    steps: tuple[Callable[[], object], ...] = (
        rescue_lost_calls,
        advance_jobs,
        ensure_lanes,
        ensure_intakes,
        prune_lanes,
        watch,
        deliver_alerts,
    )
    failed: dict[str, Exception] = {}
    for step in steps:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - one step's trouble is not the others'
            failed[step.__name__] = error
            close_old_connections()
    if failed:
        what = ", ".join(f"{name}: {type(error).__name__}" for name, error in failed.items())
        raise ExceptionGroup(what, list(failed.values()))
