"""The breaker's stops that concern more than one shard."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction

from batches.domain.states import JobStatus, PauseReason

from . import jobs
from .events import Actor, add_event
from .queries import run_query


def trip_job(
    job_id: int,
    *,
    reason: PauseReason,
    data: Mapping[str, Any],
    account_id: int | None = None,
    since: datetime | None = None,
) -> bool:
    """running → paused (or pausing, with calls in flight); False if it runs no more.

    `account_id` is the account whose answer it was, where the stop is about that one. `since` is
    the resume after which the outcomes were counted: a breaker's stop that comes after another
    one is about what that has forgiven.
    """
    with transaction.atomic():
        job = jobs.lock_job(job_id)
        if job.status != JobStatus.RUNNING:
            return False
        if reason is PauseReason.BREAKER and job.breaker_from != since:
            return False
        inflight = jobs.in_flight(job_id)
        target = JobStatus.PAUSING if inflight else JobStatus.PAUSED
        if not jobs.move_job(job_id=job_id, target=target, reason=reason):
            return False
        add_event(
            kind="job.tripped",
            job_id=job_id,
            account_id=account_id,
            data={**data, "from": job.status, "to": target.value, "reason": reason.value},
        )
    return True


def tell_uncompiled(job_id: int, *, error: str) -> bool:
    """One line in the timeline, unless there is one since the job last moved."""
    with transaction.atomic():
        jobs.lock_job(job_id)
        if run_query("told_uncompiled", job=job_id)[0]["told"]:
            return False
        add_event(kind="job.cannot_compile", job_id=job_id, reason=error[:300].replace("\x00", ""))
    return True


def lose_credential(account_id: int, *, note: str) -> int:
    """Pause the account's shards in every job; returns how many. Repeating changes nothing."""
    with transaction.atomic():
        # 1. the jobs, in id order, 2. the account, 3. the shards
        ids = [row["id"] for row in run_query("account_jobs", account=account_id)]
        run_query("lock_jobs", jobs=ids)
        lost = run_query("lose_credential", account=account_id, note=note[:300])
        paused = run_query("pause_account_shards", account=account_id, jobs=ids)
        if lost or paused:
            add_event(kind="account.credential_lost", account_id=account_id, reason=note[:300])
        for row in paused:
            add_event(
                kind="shard.credential_lost",
                job_id=row["job_id"],
                shard_ordinal=row["ordinal"],
                account_id=account_id,
            )
    return len(paused)


def restore_credential(account_id: int, *, actor: Actor, reason: str) -> int | None:
    """The account counts as well again and its shards run, in every job; returns how many.

    None if it was well and nothing stood because of it: then nothing is written.
    """
    with transaction.atomic():
        # 1. the jobs, in id order, 2. the account, 3. the shards
        ids = [row["id"] for row in run_query("credential_jobs", account=account_id)]
        run_query("lock_jobs", jobs=ids)
        restored = run_query("restore_credential", account=account_id)
        resumed = run_query("resume_account_shards", account=account_id, jobs=ids)
        if not restored and not resumed:
            return None
        run_query("touch_jobs", jobs=sorted({row["job_id"] for row in resumed}))
        add_event(
            kind="account.credential_restored",
            account_id=account_id,
            actor=actor,
            reason=reason,
            data={"shards": len(resumed)},
        )
        for row in sorted(resumed, key=lambda row: (row["job_id"], row["ordinal"])):
            add_event(
                kind="shard.resumed",
                job_id=row["job_id"],
                shard_ordinal=row["ordinal"],
                account_id=account_id,
                actor=actor,
                reason=reason,
                data={
                    "before": {"status": "paused", "reason": "credential"},
                    "after": {"status": "running"},
                },
            )
    return len(resumed)
