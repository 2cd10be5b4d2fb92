"""A simulated gateway and turns of lanes in one event loop, for scenes to be played."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from django.db import connection

from batches.engine.lane import Turn, TurnResult
from batches.engine.state import TurnOptions
from batches.models import Account, Item, Job
from batches.simulator.gateway import SimulatedGateway, SimulatorOptions
from batches.simulator.server import start, stop
from tests.factories import ShardSpec, make_account, make_gateway, make_job
from tests.integration.store.support import sql

T = TypeVar("T")

QUICK = TurnOptions(turn=30, hard_turn=40, lease=6, tick=0.1, idle=0.2, term_drain=1.0)
#: a job of scenes in which the breaker is not the subject
NO_BREAKER: dict[str, Any] = {"breaker_streak": 1000, "breaker_min_sample": 1000,
                              "breaker_window": 1000}  # fmt: skip


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


async def in_thread(function: Callable[..., T], *args: Any, **more: Any) -> T:
    """Synchronous code beside the loop, its database connection closed afterwards."""

    def call() -> T:
        try:
            return function(*args, **more)
        finally:
            connection.close()

    return await asyncio.to_thread(call)


async def until(condition: Callable[[], object], within: float = 15.0) -> None:
    """Wait until something in this loop has come true."""
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        await asyncio.sleep(0.005)


class Stage:
    """One gateway address, its rows, and what arrived there."""

    def __init__(self) -> None:
        self.port = free_port()
        self.gateway = make_gateway(base_url=f"http://127.0.0.1:{self.port}", timeout_seconds=10.0)
        self.sim: SimulatedGateway | None = None

    def accounts(self, count: int, **columns: Any) -> list[Account]:
        defaults: dict[str, Any] = {"total_rate_per_min": 600_000}
        return [make_account(gateway=self.gateway, **(defaults | columns)) for _ in range(count)]

    def job(
        self, *, accounts: int | list[Account] = 4, items: int = 10, per_min: int = 600_000,
        **columns: Any,
    ) -> Job:  # fmt: skip
        """`items` for each account, which may send `per_min` each."""
        if isinstance(accounts, int):
            accounts = self.accounts(accounts, total_rate_per_min=per_min)
        specs = [ShardSpec(pending=items, account=account) for account in accounts]
        return make_job(shards=specs, **(NO_BREAKER | columns))

    @asynccontextmanager
    async def open(self, **options: Any) -> AsyncIterator[SimulatedGateway]:
        """The gateway listens."""
        limits: dict[str, Any] = {"account_per_min": None, "ip_per_min": None}
        kept = self.sim.record if self.sim else None
        sim = SimulatedGateway(SimulatorOptions(**(limits | options)))
        if kept:
            sim.record = kept
        self.sim = sim
        runner, _ = await start(sim, host="127.0.0.1", port=self.port, keepalive=75)
        try:
            yield sim
        finally:
            await stop(sim, runner)

    # --- what arrived ---

    def sends(self) -> list[tuple[str, str]]:
        """(account, target) of everything that took effect, in order."""
        return [(e.guid, e.target) for e in self.sim.record.effects] if self.sim else []

    def since(self, mark: int) -> Counter[str]:
        """Sends per account after the first `mark` ones."""
        return Counter(guid for guid, _ in self.sends()[mark:])

    def assert_each_once(self) -> None:
        twice = [send for send, n in Counter(self.sends()).items() if n > 1]
        assert not twice, f"sent more than once: {twice}"


class Stop:
    """A worker's stop flag."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        return self.asked


async def play_turn(
    *, stop: Callable[[], bool] = lambda: False, options: TurnOptions = QUICK
) -> TurnResult:
    return await Turn(worker="test", should_stop=stop, options=options).run()


@asynccontextmanager
async def turning(
    *, stop: Callable[[], bool] = lambda: False, options: TurnOptions = QUICK
) -> AsyncIterator[asyncio.Task[TurnResult]]:
    """A turn beside the scene; it must have ended when the scene does."""
    task = asyncio.create_task(play_turn(stop=stop, options=options))
    try:
        yield task
        await asyncio.wait_for(asyncio.shield(task), 60)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def turns_until(job: Job, *statuses: str, within: float = 30.0) -> str:
    """Turn after turn, as the workers do, until the job rests in one of these."""
    end = time.monotonic() + within
    while (now := await status(job)) not in statuses:
        assert time.monotonic() < end, f"still {now}"
        await play_turn()
    return now


async def status(job: Job) -> str:
    return await in_thread(lambda: str(Job.objects.values_list("status", flat=True).get(pk=job.pk)))


def states(job: Job) -> Counter[str]:
    """Items by state; those in doubt apart."""
    rows = Item.objects.filter(job_id=job.pk).values_list("state", "in_doubt_at")
    return Counter("in_doubt" if doubt else state for state, doubt in rows)


async def until_status(job: Job, *wanted: str, within: float = 15.0) -> None:
    end = time.monotonic() + within
    while (now := await status(job)) not in wanted:
        assert time.monotonic() < end, f"still {now}"
        await asyncio.sleep(0.05)


async def until_claim_waits() -> None:
    def waits() -> bool:
        return bool(
            sql(
                "select 1 from pg_stat_activity where application_name like 'lane-claim%%'"
                " and wait_event_type = 'Lock' and datname = current_database()"
            )
        )

    end = time.monotonic() + 5
    while not await in_thread(waits):
        assert time.monotonic() < end, "no claim waits"
        await asyncio.sleep(0.02)
