"""Everything at once: two lanes, a moody gateway, dying connections, a person who cannot decide.

What may happen is drawn from a printed seed; what must hold does not depend on it.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from contextlib import suppress
from dataclasses import replace

import psycopg
import pytest

from batches.domain import decisions
from batches.domain.errors import BatchesError
from batches.models import Account, Item, Job
from batches.services.jobs import (
    cancel_job,
    pause_job,
    pause_shard,
    raise_budget,
    resume_job,
    resume_shard,
    retry_failed,
    set_rate,
)
from batches.store.advance import advance_jobs, rescue_lost_calls
from tests.integration.store.support import assert_sound, run, sql

from .stage import QUICK, Stage, in_thread, play_turn, states

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS = 9
ACCOUNTS, EACH = 8, 60
FAULTS = [
    {"kind": "refuse", "code": 40003, "probability": 0.05},
    {"kind": "refuse", "code": -1, "probability": 0.05},
    {"kind": "http_429", "retry_after": 0, "probability": 0.03},
    {"kind": "reset_after_effect", "probability": 0.02},
    {"kind": "reset_before_effect", "probability": 0.02},
    {"kind": "hang", "seconds": 3, "probability": 0.01},
    {"kind": "http_5xx_after_effect", "probability": 0.02},
]


def act(rng: random.Random, job: Job) -> str:
    """One decision of that person; most are refused by the state the job is in."""
    ordinal = rng.randint(1, ACCOUNTS)
    verb = rng.choice(
        [
            lambda: pause_job(job_id=job.pk, actor=None),
            lambda: resume_job(job_id=job.pk, actor=None),
            lambda: resume_job(job_id=job.pk, actor=None),
            lambda: pause_shard(job_id=job.pk, ordinal=ordinal, actor=None),
            lambda: resume_shard(job_id=job.pk, ordinal=ordinal, actor=None),
            lambda: resume_shard(job_id=job.pk, ordinal=ordinal, actor=None),
            lambda: retry_failed(job_id=job.pk, actor=None),
            lambda: retry_failed(job_id=job.pk, actor=None, category="target_invalid"),
            lambda: set_rate(job_id=job.pk, actor=None, per_min=rng.choice([None, 3000, 600])),
            lambda: raise_budget(
                job_id=job.pk,
                actor=None,
                to=Job.objects.get(pk=job.pk).budget_used + rng.randint(1, 80),
                reason="more",
            ),
        ]
    )
    try:
        verb()
    except BatchesError as error:
        return type(error).__name__
    return "done"


def kill_one(rng: random.Random) -> None:
    role = rng.choice(["claim", "settle", "control", "fetch"])
    sql(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name like %s and datname = current_database()",
        f"lane-{role}-%",
    )


def steal(rng: random.Random) -> None:
    """End some lane's lease behind its back."""
    if rng.random() < 0.3:
        sql(
            "update batches_lane set ended_at = clock_timestamp() where id ="
            " (select id from batches_lane where ended_at is null order by random() limit 1)"
        )


def test_storm_leaves_every_item_accounted_for_and_nothing_sent_twice(stage: Stage, monkeypatch):
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    monkeypatch.setattr(decisions, "BACKOFF_BASE", 0.05)
    monkeypatch.setattr(decisions, "RATE_HOLD", 0.1)
    job = stage.job(accounts=ACCOUNTS, items=EACH, per_min=1800, budget_limit=200, stages=[40, 150])
    sql("update batches_gateway set timeout_seconds = 1")
    over = time.monotonic() + SECONDS
    told: list[str] = []

    async def lane() -> None:
        while time.monotonic() < over + 3:
            # a connection may die before a turn has begun: the worker's next one begins anew
            with suppress(psycopg.OperationalError):
                await play_turn(options=replace(QUICK, turn=2.5, hard_turn=4, lease=3))

    async def person() -> None:
        while time.monotonic() < over:
            await asyncio.sleep(rng.uniform(0.02, 0.2))
            told.append(await in_thread(act, rng, job))

    async def misfortune() -> None:
        while time.monotonic() < over:
            await asyncio.sleep(rng.uniform(0.2, 0.8))
            await in_thread(rng.choice([kill_one, kill_one, steal]), rng)

    async def scene() -> None:
        async with stage.open(latency_seconds=(0.0, 0.02), seed=seed) as sim:
            for fault in FAULTS:
                sim.faults.install(fault)
            await asyncio.gather(lane(), lane(), person(), misfortune())
            sim.faults.remove()
            await in_thread(settle_down)

    def settle_down() -> None:
        sql("update batches_lane set ended_at = clock_timestamp() where ended_at is null")
        rescue_lost_calls()
        advance_jobs()

    run(scene())
    found = states(job)
    print(found, f"{len(stage.sends())} arrived", told.count("done"), "acts")
    stage.assert_each_once()
    assert_sound()
    assert sum(found.values()) == ACCOUNTS * EACH
    assert len(stage.sends()) > 40, "too little happened to prove anything"
    assert_what_arrived_is_known(stage, job)
    assert_cancel_ends_it(stage, job)


def assert_what_arrived_is_known(stage: Stage, job: Job) -> None:
    """Confirmed exactly where it arrived; what arrived without a proof is in doubt."""
    arrived = set(stage.sends())
    items = list(Item.objects.filter(job_id=job.pk).select_related("shard__account"))
    where = {(i.shard.account.guid, i.target): i for i in items}
    assert {key for key, i in where.items() if i.state == "confirmed"} <= arrived
    unproved = {key for key in arrived if where[key].state != "confirmed"}
    assert all(where[key].in_doubt_at for key in unproved), "arrived, and counted as never sent"
    job.refresh_from_db()
    assert job.budget_limit is None or job.budget_used <= job.budget_limit


def assert_cancel_ends_it(stage: Stage, job: Job) -> None:
    """Nothing more leaves, every item and the job come to an end."""
    mark = len(stage.sends())

    async def end() -> None:
        async with stage.open():
            await in_thread(cancel_or_leave)
            await play_turn()
            await in_thread(advance_jobs)

    def cancel_or_leave() -> None:
        try:
            cancel_job(job_id=job.pk, actor=None, reason="enough")
        except BatchesError:
            assert Job.objects.get(pk=job.pk).status in {"completed", "cancelled"}

    run(end())
    assert len(stage.sends()) == mark
    job.refresh_from_db()
    assert job.status in {"completed", "cancelled"}
    assert states(job)["pending"] == 0
    assert_sound()
    assert not Account.objects.filter(throttle__lte=0).exists()
