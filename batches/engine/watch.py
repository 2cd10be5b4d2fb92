"""Looks for what needs a person, by PostgreSQL; of Redis only whether it answers."""

from __future__ import annotations

from django.conf import settings

from batches.domain.alerts import ALERTS, NO_LANE_SECONDS, PAUSES, STUCK_SECONDS
from batches.queue import redis_answers
from batches.store.alerts import Changes, watch_alerts


def watch() -> Changes | None:
    """One look. Any number of processes may do it at once, any number of times."""
    return watch_alerts(
        texts={kind: info.text for kind, info in ALERTS.items()},
        pauses=[reason.value for reason in PAUSES],
        sla=float(settings.RECONCILE_SLA_SECONDS),
        stuck=STUCK_SECONDS,
        no_lane=NO_LANE_SECONDS,
        redis_away=not redis_answers(),
    )
