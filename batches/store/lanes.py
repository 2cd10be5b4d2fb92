"""Leases, ownership of accounts, and a lane's view of what it may run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from psycopg.rows import tuple_row

from .arrays import numbers
from .connections import Connection, rows, time_zone
from .queries import sql


async def start_lane(conn: Connection, *, worker: str, lease: float) -> int:
    """Open a turn; its id is the fencing token. `lease` in seconds."""
    found = await rows(conn, "start_lane", worker=worker[:200], lease=lease)
    return int(found[0].id)


async def renew_lane(
    conn: Connection, *, lane: int, lease: float, sent: int, note: str = ""
) -> bool | None:
    """Extend the lease. None: it is lost. True: the turn is asked to end."""
    found = await rows(conn, "renew_lane", lane=lane, lease=lease, sent=sent, note=note)
    return bool(found[0].stop_requested) if found else None


async def end_lane(conn: Connection, *, lane: int, sent: int) -> None:
    """Close a turn and let go of its accounts."""
    async with conn.transaction():
        await rows(conn, "release_accounts", lane=lane, accounts=None)
        await rows(conn, "end_lane", lane=lane, sent=sent)


async def release(conn: Connection, *, lane: int, accounts: Sequence[int]) -> None:
    """Let go of some accounts, for another lane to adopt."""
    await rows(conn, "release_accounts", lane=lane, accounts=list(accounts))


async def fair_share(conn: Connection) -> int:
    """How many accounts one lane may hold now (rounded up)."""
    found = (await rows(conn, "share", tz=time_zone()))[0]
    lanes = max(1, int(found.lanes))
    return -(-int(found.accounts) // lanes)


async def adopt(conn: Connection, *, lane: int, most: int) -> list[int]:
    """Take over up to `most` accounts that can run and have no live owner."""
    return [row.id for row in await rows(conn, "adopt", lane=lane, most=most, tz=time_zone())]


async def accounts(conn: Connection, *, lane: int) -> Sequence[Any]:
    """The lane's accounts: id, guid, gateway_id, max_inflight, due_in (s), throttled."""
    return await rows(conn, "lane_accounts", lane=lane)


async def gateways(conn: Connection, *, lane: int) -> Sequence[Any]:
    """Gateways of the lane's accounts as stored (the token still encrypted)."""
    return await rows(conn, "lane_gateways", lane=lane)


async def shards(conn: Connection, *, lane: int) -> Sequence[Any]:
    """Shards of these accounts with something left, of running jobs."""
    return await rows(conn, "lane_shards", lane=lane, tz=time_zone())


async def jobs(conn: Connection, *, ids: Sequence[int]) -> Sequence[Any]:
    """What sending needs to know of jobs, and their status."""
    return await rows(conn, "lane_jobs", jobs=list(ids))


async def start_shards(conn: Connection, *, ids: Sequence[int]) -> None:
    """Adopted shards run from now on."""
    await rows(conn, "start_shards", shards=list(ids))


async def next_items(
    conn: Connection, *, after: Sequence[tuple[int, int]], each: int
) -> Sequence[tuple[int, int, int, str, list[str]]]:
    """Up to `each` pending items per (shard, seq) pair, beyond that seq, in order.

    Each as (id, shard, seq, target, fields).
    """
    cursor = conn.cursor(row_factory=tuple_row)
    await cursor.execute(
        cast(Any, sql("next_items")),
        {
            "shards": numbers(shard for shard, _ in after),
            "after": numbers(seq for _, seq in after),
            "each": each,
        },
    )
    return await cursor.fetchall()
