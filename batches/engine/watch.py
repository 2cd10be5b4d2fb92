"""Looks for what needs a person, by PostgreSQL alone."""

from __future__ import annotations

from django.conf import settings

from batches.domain.alerts import ALERTS, PAUSES
from batches.store.alerts import Changes, watch_alerts

#: seconds without an advance, though nothing explains it
STUCK_SECONDS = 300.0
#: seconds for which work may wait for a lane; between two turns there is none for a moment
NO_LANE_SECONDS = 30.0


def watch() -> Changes | None:
    """One look. Any number of processes may do it at once, any number of times."""
    return watch_alerts(
        texts={kind: info.text for kind, info in ALERTS.items()},
        pauses=[reason.value for reason in PAUSES],
        sla=float(settings.RECONCILE_SLA_SECONDS),
        stuck=STUCK_SECONDS,
        no_lane=NO_LANE_SECONDS,
    )
