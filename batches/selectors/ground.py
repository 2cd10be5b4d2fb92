"""What jobs stand on, read once for all that are asked about, and each part only if needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cached_property
from typing import Any

from django.conf import settings

from batches.domain.alerts import STUCK_SECONDS
from batches.domain.states import JobStatus, PauseReason
from batches.models import Event, Job, Shard
from batches.store.queries import run_query

from .progress import Progress, progress_of

#: seconds; between two turns of a lane there is none for a moment
LANE_GAP = 15.0
#: what stops a job or lets it go on; the latest of them says for what it stands
STOPS = ("job.tripped", "job.pausing", "job.paused", "job.resumed")


Standing = Mapping[int, dict[str, Any]]


def stuck_measure() -> dict[str, Any]:
    """Parameters of the part `stuck`."""
    return {"stuck": STUCK_SECONDS, "no_lane": LANE_GAP, "tz": settings.TIME_ZONE}


def standing_of(jobs: Iterable[int] | None, *, shard: int | None = None) -> Standing:
    """Of these running jobs, or of all: may it send, does anything execute, what is stuck."""
    ids = None if jobs is None else list(jobs)
    found = run_query("why_standing", jobs=ids, shard=shard, **stuck_measure())
    return {row["job_id"]: row for row in found}


class Ground:
    """By job, what the sentences of some jobs (or of one job's shard) are made of."""

    def __init__(
        self,
        jobs: Iterable[Job],
        *,
        shard: Shard | None = None,
        progress: Mapping[int, Progress] | None = None,
        standing: Standing | None = None,
    ) -> None:
        """`progress` and `standing` by job spare a query each, if the caller has them."""
        jobs = list(jobs)
        self._all = [job.pk for job in jobs]
        self._running = [job.pk for job in jobs if job.status == JobStatus.RUNNING]
        paused = [job for job in jobs if job.status == JobStatus.PAUSED]
        self._paused = [job.pk for job in paused]
        self._tripped = [job.pk for job in paused if job.pause_reason == PauseReason.BREAKER]
        self._shard = shard.pk if shard else None
        self._given = progress
        self._standing = standing

    @cached_property
    def progress(self) -> Mapping[int, Progress]:
        return progress_of(self._all) if self._given is None else self._given

    @cached_property
    def standing(self) -> Standing:
        if self._standing is not None:
            return self._standing
        return standing_of(self._running, shard=self._shard) if self._running else {}

    @cached_property
    def causes(self) -> Mapping[int, dict[str, dict[str, Any]]]:
        """Cause → what waits for it; the largest part first."""
        found: dict[int, dict[str, dict[str, Any]]] = defaultdict(dict)
        for row in self._ask("why_shards"):
            found[row["job_id"]][row["cause"]] = row
        return found

    @cached_property
    def gateways(self) -> Mapping[int, list[dict[str, Any]]]:
        """Gateways whose shared limit sets the pace."""
        found: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for row in self._ask("why_gateways", tz=settings.TIME_ZONE):
            found[row["job_id"]].append(row)
        return found

    @cached_property
    def backoff(self) -> Mapping[int, datetime | None]:
        """When the next second try is due, if nothing but such is left."""
        return {row["job_id"]: row["due_at"] for row in self._ask("why_backoff")}

    @cached_property
    def uncompiled(self) -> Mapping[int, Event]:
        """The last time that a lane could not make sense of the job."""
        found = Event.objects.filter(job__in=self._running, kind="job.cannot_compile")
        return {event.job_id: event for event in found.order_by("id") if event.job_id}

    @cached_property
    def stops(self) -> Mapping[int, list[Event]]:
        """The latest stops of the paused ones, newest first."""
        ids = [row["id"] for row in run_query("why_stops", jobs=self._paused, kinds=list(STOPS))]
        found: dict[int, list[Event]] = defaultdict(list)
        for event in Event.objects.filter(pk__in=ids).select_related("account").order_by("-id"):
            found[event.job_id or 0].append(event)
        return found

    @cached_property
    def tripped(self) -> Mapping[int, dict[str, Any]]:
        """Which shards the breaker stopped of the jobs that it paused."""
        return {row["job_id"]: row for row in run_query("why_tripped", jobs=self._tripped)}

    def _ask(self, name: str, **params: Any) -> list[dict[str, Any]]:
        if not self._running:
            return []
        return run_query(name, jobs=self._running, shard=self._shard, **params)
