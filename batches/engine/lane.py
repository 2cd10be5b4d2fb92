"""One bounded turn of a lane: lease, adoption, the loops, and a clean end."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from dataclasses import dataclass

import psycopg
from django.conf import settings
from django.db import close_old_connections, connection

from batches.store import advance, lanes
from batches.store.connections import Connection, connect

from . import viewing
from .admission import Admission
from .claiming import Claimer
from .plan import AccountPlan
from .settling import Settler
from .state import SLOW_FLIGHT, LaneState, TurnOptions
from .steps import step
from .transport import Transport

log = logging.getLogger(__name__)

POLL = 0.1


@dataclass(frozen=True, slots=True)
class TurnResult:
    """How a turn ended: idle, time, stop, lost."""

    lane: int
    reason: str
    sent: int


class _Housekeeper:
    """Runs the synchronous store functions of the turn in one thread with one connection."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="housekeeping")

    async def run(self, job_ids: list[int] | None) -> None:
        await asyncio.get_running_loop().run_in_executor(self._pool, self._work, job_ids)

    @staticmethod
    def _work(job_ids: list[int] | None) -> None:
        close_old_connections()
        try:
            if job_ids is None:
                advance.rescue_lost_calls()
            advance.advance_jobs(job_ids)
        except Exception:
            log.exception("housekeeping failed this time")
            connection.close()

    async def do(self, act: Callable[[], object]) -> None:
        """Carry out one stop of the breaker; if it fails, the next bad outcome asks again."""
        await asyncio.get_running_loop().run_in_executor(self._pool, self._act, act)

    @staticmethod
    def _act(act: Callable[[], object]) -> None:
        close_old_connections()
        try:
            act()
        except Exception:
            log.exception("a stop of the breaker failed this time")
            connection.close()

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(
            self._pool,
            lambda: connection.close(),  # noqa: PLW0108 - looked up in that thread
        )
        self._pool.shutdown(wait=True)


class Turn:
    """Procedure: 1 lease, 2 adopt and look, 3 loops, 4 tick until a reason to end, 5 drain."""

    def __init__(
        self,
        *,
        worker: str = "",
        should_stop: Callable[[], bool] = lambda: False,
        options: TurnOptions | None = None,
    ) -> None:
        self._worker = worker or f"{socket.gethostname()}:{os.getpid()}"
        self._should_stop = should_stop
        self._options = options or TurnOptions()
        self._house = _Housekeeper()
        self._idle_since: float | None = None

    async def run(self) -> TurnResult:
        """Run the turn to its end. Raises `psycopg.OperationalError` if it cannot begin."""
        options = self._options
        conn = await connect("control")
        began = time.monotonic()
        try:
            lane = await lanes.start_lane(conn, worker=self._worker, lease=options.lease)
        except BaseException:
            await conn.close()
            raise
        step("lane.leased")
        state = LaneState(lane=lane, options=options, should_stop=self._should_stop)
        state.lease_deadline = began + options.lease
        try:
            async with Transport() as transport, aclosing(Admission(settings.REDIS_URL)) as gates:
                settler = Settler(state)
                claim = asyncio.create_task(Claimer(state, transport, gates).run(), name="claim")
                loops = [
                    claim,
                    asyncio.create_task(viewing.Fetcher(state).run(), name="fetch"),
                    asyncio.create_task(settler.run(), name="settle"),
                ]
                house = asyncio.create_task(self._keep_house(state), name="house")
                try:
                    conn, reason = await self._tick_until_end(conn, state, [*loops, house], began)
                    conn = await self._drain(conn, state, reason, claim, began=began)
                finally:
                    state.draining = True
                    state.claim_wake.set()
                    state.fetch_wake.set()
                    settler.finish = True
                    state.settle_wake.set()
                    await self._finish(loops, state)
                    house.cancel()
                    await asyncio.gather(house, return_exceptions=True)
            step("lane.ending")
            try:
                conn = await self._connected(conn)
                await lanes.end_lane(conn, lane=lane, sent=state.sent)
            except psycopg.OperationalError as error:
                log.warning(
                    "lane %d not closed in the database, its lease ends it: %s", lane, error
                )
            # what this turn leaves behind moves at once, not with somebody's next pass; a worker
            # that has to be gone in seconds looks at its own jobs only
            if not self._should_stop():
                await self._house.run(None)
            elif state.advance:
                await self._house.run(sorted(state.advance))
        finally:
            await conn.close()
            await self._house.close()
        if state.failed is not None:
            raise state.failed
        log.info("lane %d ended (%s), %d sent", lane, reason, state.sent)
        return TurnResult(lane, reason, state.sent)

    # --- the running turn ---

    async def _tick_until_end(
        self,
        conn: Connection,
        state: LaneState,
        loops: list[asyncio.Task[None]],
        began: float,
    ) -> tuple[Connection, str]:
        options = self._options
        next_tick = 0.0
        while True:
            now = time.monotonic()
            if self._should_stop():
                return conn, "stop"
            for loop in loops:
                if loop.done() and (error := loop.exception()) is not None:
                    log.error("the %s loop failed", loop.get_name(), exc_info=error)
                    state.failed = error
                    return conn, "failed"
            if state.lost:
                return conn, "lost"
            if now - began >= options.turn:
                state.closing = True
                if state.oldest_flight() < SLOW_FLIGHT or now - began >= options.hard_turn:
                    return conn, "time"
            if now >= next_tick:
                next_tick = now + options.tick
                conn, asked = await self._tick(conn, state)
                if asked:
                    return conn, "asked"
            if self._idle(state):
                return conn, "idle"
            await asyncio.sleep(min(POLL, options.tick))

    @staticmethod
    async def _connected(conn: Connection) -> Connection:
        """The same connection, or a new one for one that broke."""
        if not conn.closed and not conn.broken:
            return conn
        await conn.close()
        return await connect("control")

    async def _tick(self, conn: Connection, state: LaneState) -> tuple[Connection, bool]:
        """Renew, share out, adopt, look. Returns (connection, asked to end)."""
        options = self._options
        try:
            conn = await self._connected(conn)
            if await self._renew(conn, state):
                return conn, True
            if state.lost:
                return conn, False
            await viewing.refresh(conn, state)
            if not state.closing and await self._share_out(conn, state):
                await viewing.refresh(conn, state)
        except psycopg.OperationalError as error:
            log.warning("lane %d: database not answering: %s", state.lane, error)
            if time.monotonic() > state.lease_deadline + options.lease:
                state.lost = True
        return conn, False

    async def _share_out(self, conn: Connection, state: LaneState) -> bool:
        """Release what is too much, adopt what is missing; whether anything was adopted."""
        share = await lanes.fair_share(conn)
        # The share counts accounts that can run: ours that cannot make room for those.
        owned = list(state.accounts.values())
        await self._release(conn, state, [a for a in owned if not a.jobs])
        surplus = sum(bool(a.jobs) for a in owned) - share
        if surplus > max(1, share // 20):
            free = [a for a in owned if a.jobs and a.inflight == 0]
            await self._release(conn, state, free[:surplus])
        if surplus >= 0 or not await lanes.adopt(conn, lane=state.lane, most=-surplus):
            return False
        step("lane.adopted")
        return True

    async def _renew(self, conn: Connection, state: LaneState) -> bool:
        asked_at = time.monotonic()
        asked = await lanes.renew_lane(
            conn,
            lane=state.lane,
            lease=self._options.lease,
            sent=state.sent,
            note=state.note,
        )
        if asked is None:
            log.warning("lane %d lost its lease; it stops", state.lane)
            state.lost = True
            return False
        state.lease_deadline = asked_at + self._options.lease
        return asked

    async def _release(
        self, conn: Connection, state: LaneState, accounts: list[AccountPlan]
    ) -> None:
        """Let go of those of the accounts that have nothing in flight, nor about to be."""
        free = [a.account_id for a in accounts if a.inflight == 0 and not a.picked]
        for account_id in free:  # first here, so that nothing is picked for them any more
            del state.accounts[account_id]
        if free:
            await lanes.release(conn, lane=state.lane, accounts=free)

    def _idle(self, state: LaneState) -> bool:
        """Nothing to run for a while."""
        if state.shards or state.flights or state.answers:
            self._idle_since = None
            return False
        if self._idle_since is None:
            self._idle_since = time.monotonic()
        return time.monotonic() - self._idle_since > self._options.idle

    async def _keep_house(self, state: LaneState) -> None:
        """Jobs that may move: at once when a settle says so, all of them now and then."""
        passes = 0
        while True:
            while state.trips:
                await self._house.do(state.trips.pop(0))
            if passes % 10 == 0:
                await self._house.run(None)
            elif state.advance:
                ids = sorted(state.advance)
                state.advance.clear()
                await self._house.run(ids)
            passes += 1
            await asyncio.sleep(POLL)

    # --- the end ---

    async def _drain(
        self,
        conn: Connection,
        state: LaneState,
        reason: str,
        claim: asyncio.Task[None],
        *,
        began: float,
    ) -> Connection:
        """No more claims; wait for calls in flight, keeping the lease; then cut off the rest.

        A claim that is under way is waited for first: what it claims is still sent.
        """
        state.draining = True
        state.claim_wake.set()
        step("lane.draining")
        options = self._options
        if reason in {"stop", "lost", "failed"}:
            limit = options.term_drain
        else:
            longest = max((g.timeout for g in state.gateways.values()), default=0.0)
            limit = min(longest + 2.0, began + options.longest - time.monotonic())
        end = time.monotonic() + limit
        next_renewal = 0.0
        while (state.flights or not claim.done()) and time.monotonic() < end:
            if self._should_stop():
                end = min(end, time.monotonic() + options.term_drain)
            if not state.lost and time.monotonic() >= next_renewal:
                next_renewal = time.monotonic() + options.tick
                with suppress(psycopg.OperationalError):
                    conn = await self._connected(conn)
                    await self._renew(conn, state)
                    await viewing.cut_off_terminated(conn, state)
            await asyncio.sleep(0.02)
        claim.cancel()
        await asyncio.gather(claim, return_exceptions=True)
        tasks = [task for task, _ in state.flights.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return conn

    async def _finish(self, loops: list[asyncio.Task[None]], state: LaneState) -> None:
        """Give the loops their time to write what they hold; what they cannot is in doubt."""
        limit = 3.0 if self._should_stop() or state.lost else 15.0
        _, late = await asyncio.wait(loops, timeout=limit)
        for task in late:
            log.error("lane %d: the %s loop did not end in time", state.lane, task.get_name())
            task.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
