"""What the tests of watching share: a job that stands, and the alerts that are open."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from batches.domain.alerts import sentence
from batches.models import Alert, Job
from tests.factories import ShardSpec, make_job


def ago(**delta: float) -> datetime:
    return timezone.now() - timedelta(**delta)


def open_alerts() -> list[tuple[str, str]]:
    """Kinds and sentences."""
    return [
        (alert.kind, sentence(alert.text, alert.params, str))
        for alert in Alert.objects.filter(closed_at=None).order_by("id")
    ]


def only() -> tuple[str, str]:
    (found,) = open_alerts()
    return found


def kinds() -> list[str]:
    return [kind for kind, _ in open_alerts()]


def running(*specs: ShardSpec, **columns: Any) -> Job:
    """A job that was let go an hour ago and has settled nothing since."""
    job = make_job(shards=specs or [ShardSpec(pending=3)], started_at=ago(hours=1), **columns)
    job.shards.update(last_advanced_at=None)
    return job
