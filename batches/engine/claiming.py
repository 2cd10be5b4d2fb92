"""The claim loop: picks what is due, claims a group in one statement, lets it fly."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import psycopg

from batches.domain.categories import Category
from batches.domain.decisions import Decision, Fate
from batches.store import claim as store
from batches.store.connections import Connection, connect
from batches.store.settle import Settled

from .admission import Admission, Permits
from .breaking import watch
from .picking import Pick, pick_due, put_back
from .plan import PlannedItem
from .sending import Flight, fly, never_left
from .state import SLOW_FLIGHT, LaneState
from .steps import step
from .transport import Transport

log = logging.getLogger(__name__)

#: seconds to gather more when few are due, for answers that are on their way or for accounts that
#: are due in a moment: a group costs as much as dozens of items
GATHER = 0.001
GATHER_DUE = 0.005
FEW = 32
#: seconds before a half-open shard asks again while its one item has no answer yet
PROBE_WAIT = 0.05


class Claimer:
    """Owns the claim connection; the only task that claims."""

    def __init__(self, state: LaneState, transport: Transport, admission: Admission) -> None:
        self._state = state
        self._transport = transport
        self._admission = admission
        self._conn: Connection | None = None

    async def run(self) -> None:
        """Claim until the turn drains."""
        state = self._state
        try:
            self._conn = await connect("claim", lookup_plans=True)
            while not state.draining:
                picks = pick_due(state, state.group)
                if picks and len(picks) < FEW and state.flights:
                    due = state.ready.next_due()
                    soon = due is not None and due < time.monotonic() + GATHER_DUE
                    await asyncio.sleep(GATHER_DUE if soon else GATHER)
                    picks += pick_due(state, state.group - len(picks))
                if not picks:
                    await self._wait()
                elif state.may_send():
                    await self._claim(picks)
                else:
                    put_back(state, picks)
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

    async def _admit(self, picks: list[Pick]) -> tuple[list[Pick], dict[int, Permits]]:
        """Those that the gateways' shared limits let through; the others wait their time."""
        state = self._state
        await self._admission.hand_back()
        admitted: list[Pick] = []
        permits: dict[int, Permits] = {}
        for gateway_id in {pick.gateway.gateway_id for pick in picks}:
            group = [pick for pick in picks if pick.gateway.gateway_id == gateway_id]
            if group[0].gateway.unlimited:
                admitted += group
                continue
            permit, wait = await self._admission.admit(group[0].gateway, [p.targets for p in group])
            permits[gateway_id] = permit
            admitted += group[: permit.calls]
            if refused := group[permit.calls :]:
                put_back(state, refused, wait=max(0.005, wait))
        state.note = "redis" if self._admission.away else ""
        return admitted, permits

    async def _claim(self, picks: list[Pick]) -> None:
        state = self._state
        assert self._conn is not None
        picks, permits = await self._admit(picks)
        if not picks:
            return
        jobs = sorted({pick.shard.job_id for pick in picks})
        began = time.monotonic()
        step("claim.before")
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
            for permit in permits.values():
                await permit.use(0, 0)
            put_back(state, picks)
            await self._recover()
            return
        now = time.monotonic()
        claimed = {c.item_id: c for c in result.claimed}
        if claimed:
            step("claim.committed")
        places = await self._keep_used(picks, permits, claimed)
        left: list[Pick] = []
        uniform = state.rng.uniform
        for pick in picks:
            account, shard = pick.account, pick.shard
            account.picked = False
            gate = result.gates.get(account.account_id)
            if gate is None:  # not ours any more, or held: the next view tells
                account.due = max(account.due, now + 1.0)
            else:
                due = now + gate.due_in + uniform(0.0, gate.slack)
                account.due = max(now, due, account.stopped_until)
            mine = [(item, claimed[i]) for item in pick.items if (i := item.item_id) in claimed]
            if mine:
                asked = permits.get(pick.gateway.gateway_id)
                places_of = places.get(pick.gateway.gateway_id)
                self._launch(
                    pick,
                    mine,
                    began,
                    places_of.pop() if places_of else "",
                    None if asked is None else asked.good_until,
                )
            if len(mine) < len(pick.items):
                rest = [item for item in pick.items if item.item_id not in claimed]
                if gate is None:
                    pick.put_back(rest)
                elif shard.job_id not in result.stopped_jobs:
                    left.append(replace(pick, items=rest))
            state.schedule(account)
        if left:
            await self._explain(left)

    async def _keep_used(
        self,
        picks: Sequence[Pick],
        permits: Mapping[int, Permits],
        claimed: Mapping[int, store.Claimed],
    ) -> dict[int, list[str]]:
        """Give permits of what was not claimed back; the places of the others, by gateway."""
        places: dict[int, list[str]] = {}
        for gateway_id, permit in permits.items():
            used = [
                sum(item.item_id in claimed for item in pick.items)
                for pick in picks
                if pick.gateway.gateway_id == gateway_id
            ]
            await permit.use(sum(map(bool, used)), sum(used))
            places[gateway_id] = list(permit.tokens)
        return places

    def _launch(
        self,
        pick: Pick,
        mine: Sequence[tuple[PlannedItem, store.Claimed]],
        began: float,
        place: str,
        permit_until: float | None,
    ) -> None:
        state = self._state
        account, shard = pick.account, pick.shard
        call_id = mine[0][1].call_id
        account.inflight += 1
        account.probing += shard.probe
        state.sent += len(mine)
        state.open_calls.add(call_id)
        flight = Flight(
            call_id=call_id,
            items=tuple([item for item, _ in mine]),
            attempts=tuple([claimed.attempt for _, claimed in mine]),
            job=pick.job,
            account=account,
            gateway=pick.gateway,
            claimed_at=began,
            place=place,
            permit_until=permit_until,
            probe=shard.probe,
        )
        task = asyncio.get_running_loop().create_task(self._fly(flight))
        task.add_done_callback(partial(self._cut_off, flight))
        state.flights[call_id] = (task, flight)

    async def _fly(self, flight: Flight) -> None:
        state = self._state
        settled = await fly(flight, self._transport, may_send=state.may_send, rng=state.rng)
        self._land(flight, settled)

    def _cut_off(self, flight: Flight, task: asyncio.Task[None]) -> None:
        """A task that is cancelled before its first step runs nothing of `_fly`."""
        if task.cancelled():
            self._land(flight, never_left(flight, self._state.rng))

    def _land(self, flight: Flight, settled: Settled) -> None:
        state = self._state
        self._admission.ended(flight.gateway, flight.place)
        account = flight.account
        account.inflight -= 1
        account.probing -= flight.probe
        account.slow = time.monotonic() - flight.claimed_at > SLOW_FLIGHT
        hold = max([d.hold for d in settled.decisions])
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
        try:
            rooms = await store.job_room(self._conn, sorted({p.shard.job_id for p in left}))
        except psycopg.OperationalError as error:
            log.warning("limits not seen this time: %s", error)
            put_back(state, left)
            await self._recover()
            return
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
            elif shard.probe:  # its trial is under way
                account.due = max(account.due, now + PROBE_WAIT)
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
        while True:
            try:
                await self._conn.close()
                self._conn = await connect("claim", lookup_plans=True)
                unsent = await store.unsent_calls(
                    self._conn, lane=state.lane, known=list(state.open_calls)
                )
                break
            except psycopg.Error as error:
                if state.draining:
                    return
                log.warning("claim connection not back yet: %s", error)
                await asyncio.sleep(delay)
                delay = min(2.0, delay * 2)
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
