"""Lanes are woken whenever PostgreSQL has runnable work that no lane has."""

from __future__ import annotations

import logging

from redis.exceptions import RedisError

from batches import queue
from batches.store.ensure import lane_load

log = logging.getLogger(__name__)


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
    except RedisError as error:
        log.warning("lanes cannot be woken, Redis does not answer: %s", error)
        return 0
    return max(0, missing)
