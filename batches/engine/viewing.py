"""What the lane sees of the database: its accounts, shards, jobs, gateways and next items."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import deque
from functools import partial
from typing import Any

import psycopg

from batches.actions.registry import get_action
from batches.domain.breaker import BreakerWindow
from batches.gateways.base import GatewayConfig
from batches.gateways.registry import get_gateway
from batches.models.secret import open_secret
from batches.store import lanes as store
from batches.store.connections import Connection, connect
from batches.store.trips import tell_uncompiled

from .breaking import watch_minutes
from .plan import LOOK_AHEAD, AccountPlan, GatewayPlan, JobPlan, PlannedItem, ShardPlan
from .state import LaneState

log = logging.getLogger(__name__)

SHARDS_PER_FETCH = 100
#: seconds before a shard without due items is looked at again
REREAD = 0.5


async def refresh(conn: Connection, state: LaneState) -> None:
    """Bring accounts, shards and jobs up to date; changes take effect within one tick."""
    now = time.monotonic()
    await _refresh_gateways(conn, state)
    seen: set[int] = set()
    for row in await store.accounts(conn, lane=state.lane):
        seen.add(row.id)
        account = state.accounts.get(row.id)
        if account is not None and (account.gateway_id, account.guid) != (row.gateway_id, row.guid):
            # what is under way ends as it began; nothing more goes by the old address
            account.moved = True
            if account.inflight or account.picked:
                continue
            _drop(state, account)
            account = None
        if account is None:
            if row.gateway_id not in state.gateways:
                continue
            account = AccountPlan(row.id, row.guid, row.gateway_id, row.max_inflight)
            # a first random share of a second, so that adopted accounts do not start in step
            account.due = now + row.due_in
            state.accounts[row.id] = account
        account.max_inflight = row.max_inflight
        account.rate = row.rate
        # a raised rate or a lifted hold counts within a tick; two steps leave room for jitter
        soonest = max(now + row.due_in, account.stopped_until)
        if account.due > soonest + 2 * row.step:
            account.due = soonest
            state.reschedule(account)
        account.throttled = row.throttled
    for gone in state.accounts.keys() - seen:
        del state.accounts[gone]
    await _refresh_shards(conn, state)
    for account in state.accounts.values():
        state.schedule(account)


async def _refresh_gateways(conn: Connection, state: LaneState) -> None:
    for row in await store.gateways(conn, lane=state.lane):
        options = row.options if isinstance(row.options, dict) else json.loads(row.options)
        config = GatewayConfig(
            kind=row.kind,
            base_url=row.base_url,
            dialect=row.dialect,
            token=open_secret(row.token),
            options=options,
        )
        known = state.gateways.get(row.id)
        if known is None or known.config != config or known.timeout != row.timeout_seconds:
            known = state.gateways[row.id] = GatewayPlan(
                row.id, get_gateway(row.kind), config, row.timeout_seconds
            )
        known.rate_limit, known.max_concurrent = row.rate_limit_per_min, row.max_concurrent


async def _refresh_shards(conn: Connection, state: LaneState) -> None:
    rows = [r for r in await store.shards(conn, lane=state.lane) if r.account_id in state.accounts]
    await _load_jobs(conn, state, {row.job_id for row in rows})
    fresh = [row.id for row in rows if row.status == "pending"]
    if fresh:
        await store.start_shards(conn, ids=fresh)
    live: set[int] = set()
    for row in rows:
        if row.job_id not in state.jobs:
            continue
        live.add(row.id)
        shard = state.shards.get(row.id)
        if shard is None:
            shard = ShardPlan(row.id, row.job_id, row.account_id)
            state.shards[row.id] = shard
            ring = state.accounts[row.account_id].jobs.setdefault(row.job_id, deque())
            ring.append(shard)
        shard.probe = row.probe
        if not shard.buffer:
            state.want_items(shard)
    for gone in state.shards.keys() - live:
        _forget(state, state.shards.pop(gone))


def _drop(state: LaneState, account: AccountPlan) -> None:
    for shard in [s for s in state.shards.values() if s.account_id == account.account_id]:
        _forget(state, state.shards.pop(shard.shard_id))
    del state.accounts[account.account_id]


def _forget(state: LaneState, shard: ShardPlan) -> None:
    """A shard that no longer runs, or whose account is no longer ours."""
    shard.buffer.clear()
    state.hungry.discard(shard.shard_id)
    account = state.accounts.get(shard.account_id)
    if account is None:
        return
    ring = account.jobs.get(shard.job_id)
    if ring is not None and shard in ring:
        ring.remove(shard)
        if not ring:
            del account.jobs[shard.job_id]


async def _load_jobs(conn: Connection, state: LaneState, ids: set[int]) -> None:
    """Compile jobs not seen before; keep priorities current."""
    flying = {flight.job.job_id for _, flight in state.flights.values()}
    if not ids | flying:
        return
    for row in await store.jobs(conn, ids=sorted(ids | flying)):
        if row.status == "terminating":
            _cut_off(state, row.id)
        if plan := state.jobs.get(row.id):
            plan.priority = row.priority
            plan.max_attempts = row.max_attempts
            if plan.breaker_from != row.breaker_from:
                plan.breaker.clear()
                plan.breaker_from = row.breaker_from
            plan.breaker.adjust(
                ratio=row.breaker_ratio, size=row.breaker_window, min_sample=row.breaker_min_sample
            )
        elif (
            row.id in ids
            and row.id not in state.uncompiled
            and (plan := _compile(row, state)) is not None
        ):
            state.jobs[row.id] = plan
        watch_minutes(state, row)
    for gone in state.jobs.keys() - ids - flying:
        del state.jobs[gone]


def _compile(row: Any, state: LaneState) -> JobPlan | None:
    """None, told once a turn, for a job that cannot be: it must not keep the others."""
    try:
        action = get_action(row.action)
        compiled = action.compile(row.params, row.columns, row.mapping)
    except Exception as error:
        log.exception("job %s cannot be compiled; nothing of it is sent", row.id)
        state.uncompiled.add(row.id)
        state.trips.append(partial(tell_uncompiled, row.id, error=str(error)))
        return None
    return JobPlan(
        job_id=row.id,
        priority=row.priority,
        max_attempts=row.max_attempts,
        waits_for_confirmation=row.confirm_policy != "response",
        compiled=compiled,
        call_size=action.max_targets_per_call(row.call_size) if compiled.shared_content else 1,
        breaker=BreakerWindow(
            ratio=row.breaker_ratio, size=row.breaker_window, min_sample=row.breaker_min_sample
        ),
        breaker_from=row.breaker_from,
    )


def _cut_off(state: LaneState, job_id: int) -> None:
    """Terminate: stop waiting for this job's answers at once; its calls become in doubt."""
    for task, flight in list(state.flights.values()):
        if flight.job.job_id == job_id:
            task.cancel()


async def cut_off_terminated(conn: Connection, state: LaneState) -> None:
    """What a tick does for terminated jobs, for a turn that only waits for its last answers."""
    flying = {flight.job.job_id for _, flight in state.flights.values()}
    for row in await store.jobs(conn, ids=sorted(flying)) if flying else ():
        if row.status == "terminating":
            _cut_off(state, row.id)


class Fetcher:
    """Fills the look-ahead of hungry shards; owns its connection."""

    def __init__(self, state: LaneState) -> None:
        self._state = state

    async def run(self) -> None:
        """Fetch until the turn drains."""
        state = self._state
        conn = await connect("fetch", lookup_plans=True)
        try:
            while not state.draining:
                now = time.monotonic()
                shards = [
                    shard
                    for shard_id in list(state.hungry)
                    if (shard := state.shards.get(shard_id)) is not None and shard.read_after <= now
                ][:SHARDS_PER_FETCH]
                if not shards:
                    state.fetch_wake.clear()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(
                            state.fetch_wake.wait(), REREAD if state.hungry else 1.0
                        )
                    if state.hungry and not any(
                        state.shards[s].read_after <= time.monotonic()
                        for s in state.hungry
                        if s in state.shards
                    ):
                        await asyncio.sleep(0.05)
                    continue
                try:
                    await self._fetch(conn, shards)
                except psycopg.OperationalError as error:
                    log.warning("look-ahead failed: %s", error)
                    await asyncio.sleep(0.5)
                    if conn.closed or conn.broken:
                        await conn.close()
                        conn = await self._reconnect()
        finally:
            await conn.close()

    async def _reconnect(self) -> Connection:
        delay = 0.2
        while True:
            try:
                return await connect("fetch", lookup_plans=True)
            except psycopg.OperationalError:
                if self._state.draining:
                    raise
                await asyncio.sleep(delay)
                delay = min(2.0, delay * 2)

    async def _fetch(self, conn: Connection, shards: list[ShardPlan]) -> None:
        state = self._state
        rows = await store.next_items(
            conn, after=[(s.shard_id, s.read_to) for s in shards], each=LOOK_AHEAD
        )
        found: dict[int, list[PlannedItem]] = {}
        for item_id, shard_id, seq, target, fields in rows:
            found.setdefault(shard_id, []).append(PlannedItem(item_id, seq, target, fields))
        for shard in shards:
            items = found.get(shard.shard_id, [])
            state.hungry.discard(shard.shard_id)
            if state.shards.get(shard.shard_id) is not shard:
                continue
            shard.buffer.extend(items)
            if items:
                shard.read_to = items[-1].seq
            shard.ended = len(items) < LOOK_AHEAD
            if shard.ended and not shard.buffer:
                # at the end: start over, for items that came back to pending behind us
                shard.read_to = 0
                shard.read_after = time.monotonic() + REREAD
            account = state.accounts.get(shard.account_id)
            if account is not None and items:
                state.schedule(account)
