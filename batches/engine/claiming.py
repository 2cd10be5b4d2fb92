"""The claim loop: picks what is due, claims a group in one statement, lets it fly."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import psycopg

from batches.domain.categories import Category
from batches.domain.decisions import Decision, Fate
from batches.store import claim as store
from batches.store.connections import Connection, connect
from batches.store.settle import Settled

from .breaking import watch
from .plan import REFILL_BELOW, AccountPlan, JobPlan, PlannedItem, ShardPlan
from .sending import Flight, fly
from .state import SLOW_FLIGHT, LaneState
from .transport import Transport

log = logging.getLogger(__name__)

#: seconds to gather more when very little is due
GATHER = 0.001
FEW = 8


@dataclass(frozen=True, slots=True)
class Pick:
    """One call that is due: whose, of which shard, with which items of a full call's `size`."""

    account: AccountPlan
    shard: ShardPlan
    #: kept here: the lane may forget a job while its claim is under way
    job: JobPlan
    size: int
    items: list[PlannedItem]

    def put_back(self, items: Sequence[PlannedItem]) -> None:
        """Return items to the head of the look-ahead."""
        self.shard.buffer.extendleft(reversed(items))


class Claimer:
    """Owns the claim connection; the only task that claims."""

    def __init__(self, state: LaneState, transport: Transport) -> None:
        self._state = state
        self._transport = transport
        self._conn: Connection | None = None

    async def run(self) -> None:
        """Claim until the turn drains."""
        state = self._state
        try:
            self._conn = await connect("claim", lookup_plans=True)
            while not state.draining:
                picks = self._pick(state.options.group)
                if picks and len(picks) < FEW and state.flights:
                    await asyncio.sleep(GATHER)
                    picks += self._pick(state.options.group - len(picks))
                if not picks:
                    await self._wait()
                elif state.may_send():
                    await self._claim(picks)
                else:
                    self._put_back(picks)
                    await asyncio.sleep(0.05)
        finally:
            if self._conn is not None:
                await self._conn.close()

    async def _wait(self) -> None:
        """Sleep until somebody is due or something changes."""
        state = self._state
        due = state.ready.next_due()
        limit = 0.5 if due is None else min(0.5, max(0.001, due - time.monotonic()))
        if len(state.flights) >= state.options.max_flights:
            limit = 0.01
        state.claim_wake.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(state.claim_wake.wait(), limit)

    def _pick(self, most: int) -> list[Pick]:
        """Due accounts, one item each."""
        state = self._state
        if (
            len(state.flights) >= state.options.max_flights
            or len(state.answers) >= state.options.max_backlog
        ):
            return []
        picks: list[Pick] = []
        now = time.monotonic()
        while len(picks) < most:
            account = state.ready.pop_due(now)
            if account is None:
                break
            if account.account_id not in state.accounts or (state.closing and account.slow):
                continue
            if account.inflight >= account.max_inflight:
                continue
            taken = account.take(state.jobs, state.blocked, now)
            if taken is None:
                self._retry_blocked(account, now)
                continue
            shard, job = taken
            gateway = state.gateways[account.gateway_id]
            size = account.call_size(job, state.jobs, gateway) if job.call_size > 1 else 1
            items = [shard.buffer.popleft() for _ in range(min(size, len(shard.buffer)))]
            if len(shard.buffer) < max(REFILL_BELOW, size):
                state.want_items(shard)
            picks.append(Pick(account, shard, job, size, items))
        return picks

    def _retry_blocked(self, account: AccountPlan, now: float) -> None:
        """An account whose jobs are at their limits comes back when the first of them is not."""
        times = [t for job in account.jobs if (t := self._state.blocked.get(job, 0.0)) > now]
        if times and account.has_item():
            account.due = max(account.due, min(times))
            self._state.ready.push(account, account.due)

    def _put_back(self, picks: list[Pick]) -> None:
        for pick in reversed(picks):
            pick.put_back(pick.items)
            pick.account.due = max(pick.account.due, time.monotonic() + 0.05)
            self._state.schedule(pick.account)

    async def _claim(self, picks: list[Pick]) -> None:
        state = self._state
        assert self._conn is not None
        jobs = sorted({pick.shard.job_id for pick in picks})
        try:
            result = await store.claim(
                self._conn,
                lane=state.lane,
                jobs=jobs,
                wants=[
                    store.Want(p.account.account_id, p.size, [i.item_id for i in p.items])
                    for p in picks
                ],
            )
        except psycopg.OperationalError as error:
            log.warning("claim failed, nothing of it was sent: %s", error)
            self._put_back(picks)
            await self._recover()
            return
        now = time.monotonic()
        claimed = {c.item_id: c for c in result.claimed}
        left: list[Pick] = []
        for pick in picks:
            account, shard = pick.account, pick.shard
            gate = result.gates.get(account.account_id)
            if gate is None:  # not ours any more, or held: the next view tells
                account.due = max(account.due, now + 1.0)
            else:
                account.due = max(now, now + gate.due_in + state.rng.uniform(0.0, gate.slack))
            mine = [(item, claimed[i]) for item in pick.items if (i := item.item_id) in claimed]
            if mine:
                self._launch(pick, mine, now)
            rest = [item for item in pick.items if item.item_id not in claimed]
            if gate is None:
                pick.put_back(rest)
            elif rest and shard.job_id not in result.stopped_jobs:
                left.append(replace(pick, items=rest))
            state.schedule(account)
        if left:
            await self._explain(left)

    def _launch(
        self, pick: Pick, mine: Sequence[tuple[PlannedItem, store.Claimed]], now: float
    ) -> None:
        state = self._state
        account = pick.account
        call_id = mine[0][1].call_id
        account.inflight += 1
        state.sent += len(mine)
        state.open_calls.add(call_id)
        flight = Flight(
            call_id=call_id,
            items=tuple(item for item, _ in mine),
            attempts=tuple(claimed.attempt for _, claimed in mine),
            job=pick.job,
            account=account,
            gateway=state.gateways[account.gateway_id],
            claimed_at=now,
        )
        task = asyncio.get_running_loop().create_task(self._fly(flight))
        state.flights[call_id] = (task, flight)

    async def _fly(self, flight: Flight) -> None:
        state = self._state
        settled = await fly(flight, self._transport, may_send=state.may_send, rng=state.rng)
        account = flight.account
        account.inflight -= 1
        account.slow = time.monotonic() - flight.claimed_at > SLOW_FLIGHT
        hold = max(d.hold for d in settled.decisions)
        if hold or settled.late:
            account.due = max(account.due, time.monotonic() + hold + settled.late)
        watch(state, flight, settled)
        state.flights.pop(flight.call_id, None)
        state.answers.append(settled)
        state.settle_wake.set()
        state.schedule(account)

    async def _explain(self, left: list[Pick]) -> None:
        """Items not claimed though their account was ours: wait for a limit, or drop them."""
        state = self._state
        assert self._conn is not None
        rooms = await store.job_room(self._conn, sorted({p.shard.job_id for p in left}))
        now = time.monotonic()
        for pick in reversed(left):
            account, shard = pick.account, pick.shard
            room = rooms.get(shard.job_id)
            if room is None or room.status != "running":
                continue
            if not room.may_send:
                state.blocked[shard.job_id] = now + 1.0
            elif room.rate_in > 0:
                state.blocked[shard.job_id] = now + room.rate_in
            elif room.budget <= 0 or room.stage <= 0:
                state.blocked[shard.job_id] = now + 1.0
                state.advance.add(shard.job_id)
            elif account.due <= now:
                continue  # not pending any more; if it is, the look-ahead finds it again
            pick.put_back(pick.items)
            state.schedule(account)

    async def _recover(self) -> None:
        """Reconnect; calls whose claim was committed without our knowing were never sent."""
        state = self._state
        assert self._conn is not None
        if not self._conn.broken and not self._conn.closed:
            await asyncio.sleep(0.05)
            return
        delay = 0.1
        while not state.draining:
            try:
                await self._conn.close()
                self._conn = await connect("claim", lookup_plans=True)
                unsent = await store.unsent_calls(
                    self._conn, lane=state.lane, known=list(state.open_calls)
                )
                break
            except psycopg.Error as error:
                log.warning("claim connection not back yet: %s", error)
                await asyncio.sleep(delay)
                delay = min(2.0, delay * 2)
        else:
            return
        for row in unsent:
            state.open_calls.add(row.id)
            decision = Decision(
                Fate.RETRY,
                "not_sent",
                category=Category.LOST,
                message="claimed on a connection that broke; never sent",
                counted=False,
                refund=True,
            )
            state.answers.append(
                Settled(
                    call_id=row.id,
                    job_id=row.job_id,
                    account_id=row.account_id,
                    item_ids=tuple(row.item_ids),
                    decisions=(decision,) * len(row.item_ids),
                )
            )
        if unsent:
            state.settle_wake.set()
