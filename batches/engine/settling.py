"""The settle loop: records answers in groups, in the order in which they came."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace

import psycopg

from batches.domain.categories import Category
from batches.domain.decisions import Decision, Fate
from batches.store.connections import Connection, connect
from batches.store.settle import Settled, settle

from .state import LaneState
from .steps import step

log = logging.getLogger(__name__)

GROUP = 256
#: seconds to gather more when few have come; nothing waits for a settle
GATHER = 0.005
FEW = 32


class Settler:
    """Owns the settle connection; the only task that settles."""

    def __init__(self, state: LaneState) -> None:
        self._state = state
        self._conn: Connection | None = None
        self.finish = False

    async def run(self) -> None:
        """Settle until told to finish and nothing is left."""
        state = self._state
        try:
            self._conn = await connect("settle", lookup_plans=True)
            while state.answers or not self.finish:
                if not state.answers:
                    state.settle_wake.clear()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(state.settle_wake.wait(), 0.5)
                    continue
                if len(state.answers) < FEW and state.flights and not self.finish:
                    await asyncio.sleep(GATHER)
                batch = state.answers[:GROUP]
                del state.answers[:GROUP]
                await self._settle(batch)
        finally:
            if self._conn is not None:
                await self._conn.close()

    async def _settle(self, batch: list[Settled]) -> None:
        """Record one group, again and again until it is recorded: repeating it is harmless."""
        state = self._state
        delay = 0.02
        while True:
            try:
                assert self._conn is not None
                if self._conn.closed or self._conn.broken:
                    await self._conn.close()
                    self._conn = await connect("settle", lookup_plans=True)
                done = await settle(self._conn, batch)
                step("settle.done")
                break
            except psycopg.OperationalError as error:
                log.warning("settle of %d answers is tried again: %s", len(batch), error)
                await asyncio.sleep(delay)
                delay = min(1.0, delay * 2)
            except psycopg.Error:
                # One answer that the database refuses must not take its neighbours along.
                if len(batch) > 1:
                    for settled in batch:
                        await self._settle([settled])
                else:
                    log.exception("answer of call %d cannot be recorded", batch[0].call_id)
                    await self._give_up(batch[0])
                return
        state.advance |= done
        state.open_calls.difference_update(s.call_id for s in batch)
        state.claim_wake.set()

    async def _give_up(self, settled: Settled) -> None:
        """Leave the call in doubt: visible, never sent again, for a person to decide."""
        doubt = Decision(
            Fate.DOUBT, "unknown", category=Category.UNREADABLE, message="answer not recordable"
        )
        assert self._conn is not None
        try:
            await settle(
                self._conn,
                [replace(settled, decisions=(doubt,) * len(settled.item_ids), http_status=None)],
            )
        except psycopg.Error:
            # It stays among the open calls: a claim connection that comes back must not take it
            # for one that was never sent.
            log.exception("call %d stays in flight until the lane ends", settled.call_id)
        else:
            self._state.open_calls.discard(settled.call_id)
