"""One bad account stops itself and nobody else; one submission from two processes is one job."""

from __future__ import annotations

import asyncio
import csv
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from batches.models import Account, Item, Job, Shard
from batches.services.jobs import resume_job, retry_failed
from tests.integration.engine.stage import (
    QUICK,
    Stage,
    Stop,
    in_thread,
    states,
    status,
    turning,
    turns_until,
    until,
)
from tests.integration.store.support import assert_sound, run

from .rig import ROOT, environment

pytestmark = pytest.mark.django_db(transaction=True)

STREAK, INFLIGHT, PER_MIN = 5, 3, 600
SECONDS = 4.0


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def _pace(stage: Stage, accounts: list[Account], bad: Account | None) -> Counter[str]:
    """Sends by account within a few seconds; requests of the bad one are all refused."""
    job = await in_thread(
        lambda: stage.job(
            accounts=[*accounts, bad] if bad else accounts, items=120, breaker_streak=STREAK,
            breaker_min_sample=1000, breaker_window=1000,
        )
    )  # fmt: skip
    async with stage.open(latency_seconds=(0.02, 0.05)) as sim:
        mark = len(sim.record.effects)
        fault = None
        if bad:
            fault = sim.faults.install(
                {"kind": "refuse", "code": 40003, "scope": {"guid": bad.guid}}
            )
        stop = Stop()
        async with turning(stop=stop, options=QUICK):
            await until(lambda: len(sim.record.effects) > mark)
            await asyncio.sleep(SECONDS)
            stop.asked = True
        if fault and bad:
            shard = await in_thread(lambda: Shard.objects.get(job=job, account=bad))
            assert (shard.status, shard.reason) == ("paused", "breaker")
            assert STREAK <= fault.fired <= STREAK + INFLIGHT - 1
            assert shard.failed == fault.fired
            others = await in_thread(lambda: set(
                Shard.objects.filter(job=job).exclude(account=bad).values_list("status", "reason")
            ))  # fmt: skip
            assert others == {("running", "")}
    await in_thread(assert_sound, job)
    # the next run starts with idle accounts
    await in_thread(lambda: Job.objects.filter(pk=job.pk).update(status="paused"))
    return stage.since(mark)


def test_account_that_only_fails_stops_itself_and_slows_nobody(stage: Stage):
    async def scene() -> None:
        accounts = await in_thread(
            lambda: stage.accounts(6, total_rate_per_min=PER_MIN, max_inflight=INFLIGHT)
        )
        good, bad = accounts[:5], accounts[5]
        with_it = await _pace(stage, good, bad)
        without = await _pace(stage, good, None)
        assert bad.guid not in with_it
        for account in good:
            share = with_it[account.guid] / without[account.guid]
            assert 0.85 <= share <= 1.2, f"{with_it} beside the bad one, {without} without"

    run(scene())


def test_lost_login_stops_its_account_in_every_job_and_only_there(stage: Stage):
    async def scene() -> None:
        accounts = await in_thread(lambda: stage.accounts(3, total_rate_per_min=6000))
        lost = accounts[0]
        jobs = [await in_thread(lambda: stage.job(accounts=accounts, items=6)) for _ in range(2)]
        async with stage.open(latency_seconds=(0.01, 0.02)) as sim:
            fault = sim.faults.install({"kind": "credential_expired", "scope": {"guid": lost.guid}})
            stop = Stop()

            def others_done() -> bool:
                return len(sim.record.effects) == 2 * 2 * 6

            async with turning(stop=stop):
                await until(others_done)
                stop.asked = True
            stopped = await in_thread(lambda: list(
                Shard.objects.filter(account=lost).values_list("status", "reason")
            ))  # fmt: skip
            assert stopped == [("paused", "credential")] * 2
            health = await in_thread(lambda: Account.objects.get(pk=lost.pk).health)
            assert health == "credential"
            assert fault.fired <= 4, "it goes on asking a gateway that has said no"
            # logged in again: a person goes on with both jobs, nothing is lost, nothing comes twice
            sim.faults.remove()
            for job in jobs:
                await in_thread(resume_job, job_id=job.pk, actor=None)
                if await in_thread(Item.objects.filter(job_id=job.pk, state="failed").count):
                    await in_thread(retry_failed, job_id=job.pk, actor=None)
            for job in jobs:
                assert await turns_until(job, "completed") == "completed"
                assert await in_thread(states, job) == Counter(confirmed=18)
            # both jobs have the same targets
            assert set(Counter(stage.sends()).values()) == {2}
        await in_thread(assert_sound, *jobs)

    run(scene())


def test_one_submission_from_two_processes_at_once_is_one_job_sent_once(
    stage: Stage, tmp_path: Path
):
    accounts = stage.accounts(3)
    table = tmp_path / "customers.csv"
    with table.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle)
        writer.writerow(["account", "target", "name"])
        writer.writerows(
            [account.guid, f"788{a:05d}{n:08d}", "name"]
            for a, account in enumerate(accounts)
            for n in range(10)
        )
    command = [
        *(sys.executable, ROOT / "manage.py", "create_job", "--action", "send_text"),
        *("--csv", table, "--param", "content=hello {name}", "--start", "--json"),
    ]
    started = [
        subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    ended = [process.communicate(timeout=60) for process in started]
    assert [process.returncode for process in started] == [0, 0], ended
    told = [json.loads(out) for out, _err in ended]
    assert told[0]["id"] == told[1]["id"]
    assert sorted(report["created"] for report in told) == [False, True]
    job = Job.objects.get()

    async def scene() -> None:
        async with stage.open():
            await turns_until(job, "completed")
            stage.assert_each_once()
            assert len(stage.sends()) == 30
            assert await status(job) == "completed"

    run(scene())
    assert_sound(job)
