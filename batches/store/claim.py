"""The claim: the one place where an item becomes `submitted`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, cast

from psycopg.rows import tuple_row

from .arrays import numbers
from .connections import Connection, rows, time_zone, together
from .queries import sql


# Not frozen, as nothing that is made once per item: it would take three times as long.
@dataclass(slots=True)
class Want:
    """One call that could be made: its account, the size of a full call there, its items."""

    account_id: int
    size: int
    item_ids: Sequence[int]


@dataclass(slots=True)
class Claimed:
    """One item that is ours to send, once; items of one call share its id."""

    item_id: int
    call_id: int
    account_id: int
    attempt: int


@dataclass(slots=True)
class Gate:
    """An account after the claim: seconds until its next send may leave, and the jitter room."""

    due_in: float
    slack: float


@dataclass(slots=True)
class ClaimResult:
    """What was claimed; the gates of the accounts still ours; jobs that no longer run."""

    claimed: list[Claimed] = field(default_factory=list)
    gates: dict[int, Gate] = field(default_factory=dict)
    stopped_jobs: set[int] = field(default_factory=set)


async def claim(
    conn: Connection,
    *,
    lane: int,
    jobs: Sequence[int],
    wants: Sequence[Want],
) -> ClaimResult:
    """Claim what may be claimed (in that order of preference), in one transaction.

    Each account stands in one want. Limits may leave a call with fewer items, or with none.

    An account that is missing from `gates` is not ours any more, or holds.
    After an exception nothing is known: see `unsent_calls`.
    """
    lasts = list(accumulate(len(want.item_ids) for want in wants))
    job_ids = numbers(jobs)
    cursor = conn.cursor(row_factory=tuple_row)
    async with together(conn):
        locked = await conn.execute(cast(Any, sql("lock_jobs")), {"jobs": job_ids})
        await cursor.execute(
            cast(Any, sql("claim")),
            {
                "lane": lane,
                "jobs": job_ids,
                "accounts": numbers(want.account_id for want in wants),
                "sizes": numbers(want.size for want in wants),
                "items": numbers(item for want in wants for item in want.item_ids),
                "firsts": numbers([1, *(last + 1 for last in lasts[:-1])]),
                "lasts": numbers(lasts),
                "tz": time_zone(),
            },
        )
    result = ClaimResult()
    running = {row.id for row in await locked.fetchall() if row.status == "running"}
    result.stopped_jobs = set(jobs) - running
    for account_id, item_id, call_id, attempt, gate_in, slack in await cursor.fetchall():
        result.gates[account_id] = Gate(gate_in, slack)
        if call_id is not None:
            result.claimed.append(Claimed(item_id, call_id, account_id, attempt))
    return result


@dataclass(frozen=True, slots=True)
class Room:
    """What is left of a job's limits, and seconds until its rate ceiling lets the next go."""

    status: str
    budget: int
    stage: int
    rate_in: float
    #: False outside its hours or before its start
    may_send: bool


async def job_room(conn: Connection, jobs: Sequence[int]) -> dict[int, Room]:
    """Room of each job by id."""
    found = await rows(conn, "job_room", jobs=list(jobs), tz=time_zone())
    return {r.id: Room(r.status, r.budget_room, r.stage_room, r.rate_in, r.may_send) for r in found}


async def unsent_calls(conn: Connection, *, lane: int, known: Sequence[int]) -> Sequence[Any]:
    """Calls claimed under this lane that are not among `known`: their claim's answer was lost."""
    return await rows(conn, "unsent_calls", lane=lane, known=list(known))
