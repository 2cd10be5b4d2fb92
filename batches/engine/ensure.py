"""Lanes are woken whenever PostgreSQL has runnable work that no lane has."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.db.models.functions import Now

from batches import queue
from batches.domain.states import JobStatus
from batches.models import Job
from batches.store.ensure import lane_load

log = logging.getLogger(__name__)

#: a file whose reading was not taken up by then is asked for again
INTAKE_LATE = timedelta(seconds=10)


def ensure_lanes() -> int:
    """Enqueue the turns that are missing; returns how many.

    Called by every lane worker's maintenance, by the periodic work and at a turn's end, so a
    flushed queue or a killed worker delays work by seconds and loses none of it.
    """
    load = lane_load()
    if load.runnable_accounts == 0:
        return 0
    try:
        wanted = min(load.runnable_accounts, max(1, queue.lane_workers()))
        missing = wanted - load.live_lanes - queue.waiting_turns()
        for _ in range(max(0, missing)):
            queue.enqueue_lane_turn()
    except queue.QueueAwayError as error:
        log.warning("lanes cannot be woken, Redis does not answer: %s", error)
        return 0
    return max(0, missing)


def ensure_intakes() -> int:
    """Ask again for files that nobody reads; returns how many.

    Only while no such task waits; a task for a file that is being read ends at once.
    """
    late = Job.objects.filter(
        status=JobStatus.PREPARING, created_at__lt=Now() - INTAKE_LATE
    ).values_list("pk", flat=True)[:20]
    try:
        if not late or queue.waiting_intakes():
            return 0
    except queue.QueueAwayError as error:
        log.warning("files cannot be asked for, Redis does not answer: %s", error)
        return 0
    return sum(queue.enqueue_intake(job_id) for job_id in late)
