"""Guarded changes of jobs and shards that a person asked for.

Every caller holds the job's row lock (`lock_job`), taken before any other row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import connection
from django.db.models import Case, F, When
from django.db.models.functions import Now

from batches.domain.states import JobStatus, PauseReason, ShardStatus, job_sources, shard_sources
from batches.models import Job, Shard

from .queries import sql


def lock_job(job_id: int) -> Job:
    """The job as last committed, locked until the transaction ends.

    A statement of its own: what follows sees every claim that was committed before the lock.
    Raises `Job.DoesNotExist`.
    """
    return Job.objects.select_for_update(no_key=True).get(pk=job_id)


def in_flight(job_id: int) -> int:
    """Items sent whose answer is still to come."""
    with connection.cursor() as cursor:
        cursor.execute(sql("job_in_flight"), {"job": job_id})
        return int(cursor.fetchone()[0])


def move_job(
    *, job_id: int, target: JobStatus, reason: PauseReason | None = None, **columns: Any
) -> bool:
    """Move a job along an arrow of the state table; False if it is not in a source state."""
    sources = [state.value for state in job_sources(target)]
    moved = Job.objects.filter(pk=job_id, status__in=sources).update(
        status=target.value,
        pause_reason=reason.value if reason else "",
        version=F("version") + 1,
        **columns,
    )
    return moved == 1


def start_job(job_id: int) -> bool:
    """awaiting → running."""
    return move_job(job_id=job_id, target=JobStatus.RUNNING, started_at=Now())


def resume_job(*, job_id: int, **columns: Any) -> bool:
    """Back to running, whatever it stopped for; the breaker counts anew."""
    return move_job(
        job_id=job_id,
        target=JobStatus.RUNNING,
        finished_at=None,
        breaker_from=Now(),
        **columns,
    )


def change_job(*, job_id: int, sources: Iterable[JobStatus], **columns: Any) -> bool:
    """Change limits without changing the status; False if the status is none of `sources`."""
    changed = Job.objects.filter(pk=job_id, status__in=[state.value for state in sources]).update(
        version=F("version") + 1, **columns
    )
    return changed == 1


def set_rate(*, job_id: int, sources: Iterable[JobStatus], per_min: int | None) -> bool:
    """A new ceiling counts from now on: the next send waits at most one step of the new pace."""
    with connection.cursor() as cursor:
        cursor.execute(
            sql("set_job_rate"),
            {
                "job": job_id,
                "per_min": per_min,
                "sources": [state.value for state in sources],
            },
        )
        return bool(cursor.rowcount == 1)


def move_shard(
    *, job_id: int, ordinal: int, target: ShardStatus, reason: PauseReason | None = None
) -> bool:
    """Move one shard along an arrow of the state table; False if it is not in a source state."""
    sources = [state.value for state in shard_sources(target)]
    if target is ShardStatus.RUNNING:
        # reopening a settled shard is what a retry does, with its counters
        sources = [ShardStatus.PAUSED.value]
    found = Shard.objects.filter(job_id=job_id, ordinal=ordinal, status__in=sources)
    columns: dict[str, Any] = {"status": target.value, "reason": reason.value if reason else ""}
    if target is ShardStatus.RUNNING:
        # stopped by the system: half-open
        columns["probe_from"] = Case(
            When(reason=PauseReason.OPERATOR.value, then=F("probe_from")), default=Now()
        )
    return found.update(**columns) == 1


def trust_accounts(*, job_id: int, ordinal: int | None = None) -> list[int]:
    """Accounts whose lost login stopped shards of this job count as well again. Their ids."""
    with connection.cursor() as cursor:
        cursor.execute(sql("trust_accounts"), {"job": job_id, "ordinal": ordinal})
        return sorted(row[0] for row in cursor.fetchall())


def probe_shards(job_id: int) -> None:
    """Each shard that runs tries with one item before it goes on in step."""
    with connection.cursor() as cursor:
        cursor.execute(sql("probe_shards"), {"job": job_id})


def resume_tripped_shards(job_id: int) -> list[int]:
    """Shards that the system paused run again; those that a person paused stay. Ordinals."""
    with connection.cursor() as cursor:
        cursor.execute(
            sql("resume_tripped_shards"),
            {"job": job_id, "person": PauseReason.OPERATOR.value},
        )
        return sorted(row[0] for row in cursor.fetchall())
