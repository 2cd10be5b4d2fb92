"""The real store for the proofs: asynchronous functions called from a test's own thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import psycopg
from django.db import connection

from batches.store import lanes
from batches.store.claim import ClaimResult, Want, claim
from batches.store.connections import Connection, connect
from batches.store.settle import Settled, settle
from tests.tooling.processes import wait_until

T = TypeVar("T")

#: what the laws are about, one query each; rows by id
LOOK = {
    "items": "select id, state, call_id, attempt, due_at is not null, accepted_at is not null, "
    "in_doubt_at is not null from batches_item",
    "shards": "select id, pending, submitted, in_doubt, confirmed, failed, abandoned, total, "
    "status, bad_streak, probe_from from batches_shard",
    "jobs": "select id, status, budget_used, budget_limit, stages_passed, total from batches_job",
    "accounts": "select id, lane_id, hold_until > clock_timestamp() from batches_account",
    "calls": "select id, lane_id, item_ids, answered_at is not null, lost_at is not null "
    "from batches_call",
}


class Store:
    """Three lanes' worth of connections, on a loop in a thread of its own."""

    def __init__(self, lanes_count: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="store", daemon=True)
        self._thread.start()
        #: verbs that run beside the test's own thread
        self._sides = [ThreadPoolExecutor(max_workers=1) for _ in range(2)]
        self._claims = [self._connect(f"claim{n}") for n in range(lanes_count)]
        self._settles = [self._connect(f"settle{n}") for n in range(lanes_count)]
        self._control = self._connect("control")

    def close(self) -> None:
        for side in self._sides:
            side.submit(lambda: connection.close()).result()  # noqa: PLW0108 - found in that thread
            side.shutdown()
        for conn in (*self._claims, *self._settles, self._control):
            self._call(conn.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _connect(self, role: str) -> Connection:
        return self._call(connect(f"proof-{role}", lookup_plans=True))

    def _begin(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._begin(coroutine).result(30)

    # --- the store's functions, begun; `.result()` waits -----------------------------------------

    def claim(
        self, slot: int, *, lane: int, jobs: Sequence[int], wants: Sequence[Want]
    ) -> Future[ClaimResult]:
        return self._begin(claim(self._claims[slot], lane=lane, jobs=jobs, wants=wants))

    def settle(self, slot: int, batch: Sequence[Settled]) -> Future[set[int]]:
        return self._begin(settle(self._settles[slot], batch))

    def adopt(self, *, lane: int, most: int) -> Future[list[int]]:
        return self._begin(lanes.adopt(self._control, lane=lane, most=most))

    def beside(self, slot: int, act: Callable[[], T]) -> Future[T]:
        """A verb, on a Django connection of its own."""
        return self._sides[slot].submit(act)

    def start_lane(self) -> int:
        return self._call(lanes.start_lane(self._control, worker="proof", lease=3600.0))

    def renew_lane(self, lane: int) -> bool | None:
        return self._call(lanes.renew_lane(self._control, lane=lane, lease=3600.0, sent=0))

    def end_lane(self, lane: int) -> None:
        self._call(lanes.end_lane(self._control, lane=lane, sent=0))

    def release(self, lane: int, accounts: Sequence[int]) -> None:
        self._call(lanes.release(self._control, lane=lane, accounts=accounts))

    def start_shards(self, ids: Sequence[int]) -> None:
        self._call(lanes.start_shards(self._control, ids=ids))


def sql(statement: str, *params: object) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchall() if cursor.description else []


Stored = dict[str, dict[int, tuple[Any, ...]]]


def look() -> Stored:
    """Everything that the laws are about, as it is stored."""
    return {name: {row[0]: row[1:] for row in sql(query)} for name, query in LOOK.items()}


@contextlib.contextmanager
def barrier(*, jobs: Sequence[int], items: Sequence[int]) -> Iterator[psycopg.Connection[Any]]:
    """Hold these rows, so that what is begun meanwhile queues up and then runs into each other."""
    params = dict(connection.get_connection_params())
    for key in ("context", "cursor_factory", "prepare_threshold", "server_side_binding"):
        params.pop(key, None)
    with psycopg.connect(**params) as other:
        other.execute(
            "select id from batches_job where id = any(%s) order by id for no key update",
            [list(jobs)],
        )
        other.execute(
            "select id from batches_item where id = any(%s) order by id for no key update",
            [list(items)],
        )
        yield other


def await_queued(begun: Sequence[Future[Any]]) -> None:
    """Until each of these acts has ended or waits for a lock."""
    waiting = (
        "select count(*) from pg_stat_activity where datname = current_database() "
        "and wait_event_type = 'Lock'"
    )
    assert wait_until(lambda: sql(waiting)[0][0] >= sum(not future.done() for future in begun))
