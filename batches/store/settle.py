"""The settle: records outcomes, moves shards, returns budget, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from batches.domain.decisions import Decision

from .connections import Connection
from .queries import sql

_CLIP = 500


@dataclass(frozen=True, slots=True)
class Settled:
    """One call's answer: a decision for each of its items, in the call's order."""

    call_id: int
    job_id: int
    account_id: int
    item_ids: tuple[int, ...]
    decisions: tuple[Decision, ...]
    http_status: int | None = None
    duration_ms: int | None = None
    #: seconds by which the request left later than its claim allowed for
    late: float = 0.0
    throttled: bool = False


def _clip(text: str | None) -> str | None:
    return text[:_CLIP].replace("\x00", "") if text else None


def _item_columns(batch: Sequence[Settled]) -> dict[str, list[Any]]:
    pairs = [(s, i, d) for s in batch for i, d in zip(s.item_ids, s.decisions, strict=True)]
    return {
        "items": [i for _, i, _ in pairs],
        "calls": [s.call_id for s, _, _ in pairs],
        "fates": [d.fate.value for _, _, d in pairs],
        "categories": [d.category for _, _, d in pairs],
        "codes": [d.code[:40] if d.code else None for _, _, d in pairs],
        "messages": [_clip(d.message) for _, _, d in pairs],
        "msg_ids": [d.msg_id[:128] if d.msg_id else None for _, _, d in pairs],
        "waits": [d.wait for _, _, d in pairs],
        "counted": [d.counted for _, _, d in pairs],
        "refunds": [d.refund for _, _, d in pairs],
        "bads": [d.bad for _, _, d in pairs],
    }


def _call_columns(batch: Sequence[Settled]) -> dict[str, list[Any]]:
    def outcome(settled: Settled) -> str:
        kinds = {d.outcome for d in settled.decisions}
        return kinds.pop() if len(kinds) == 1 else "mixed"

    worst = [next((d for d in s.decisions if d.category), s.decisions[0]) for s in batch]
    return {
        "calls": [s.call_id for s in batch],
        "outcomes": [outcome(s) for s in batch],
        "statuses": [s.http_status for s in batch],
        "categories": [d.category for d in worst],
        "codes": [d.code[:40] if d.code else None for d in worst],
        "messages": [_clip(d.message) for d in worst],
        "durations": [s.duration_ms for s in batch],
    }


def _pace_columns(batch: Sequence[Settled]) -> dict[str, list[Any]]:
    """Per account, its strongest slow-down, hold and push; empty where none asks for any."""
    merged: dict[int, tuple[bool, float, str, float]] = {}
    witness: dict[int, int] = {}
    for settled in batch:
        for d in settled.decisions:
            if not (d.slow_down or d.hold or settled.late):
                continue
            slow, hold, reason, push = merged.get(settled.account_id, (False, 0.0, "", 0.0))
            if d.hold > hold:
                hold, reason = d.hold, d.hold_reason
            merged[settled.account_id] = (
                slow or d.slow_down,
                hold,
                reason,
                max(push, settled.late),
            )
            witness[settled.account_id] = settled.call_id
    order = sorted(merged)
    return {
        "accounts": order,
        "slows": [merged[a][0] for a in order],
        "holds": [merged[a][1] for a in order],
        "reasons": [merged[a][2] for a in order],
        "pushes": [merged[a][3] for a in order],
        "calls": [witness[a] for a in order],
    }


async def settle(conn: Connection, batch: Sequence[Settled]) -> set[int]:
    """Record a group of answers; returns the jobs of which a shard has nothing left to send.

    Safe to repeat: after an exception the whole group may be settled again.
    """
    items = _item_columns(batch)
    calls = _call_columns(batch)
    pace = _pace_columns(batch)
    # A refund changes the job row, a return to `pending` depends on the job's state: only then
    # are the jobs locked, so that plain successes never wait for one.
    needs_jobs = any(d.refund for s in batch for d in s.decisions)
    recovered = {
        s.account_id: s.call_id
        for s in batch
        if s.throttled and s.decisions[0].outcome == "accepted"
    }
    async with conn.pipeline(), conn.transaction():
        if needs_jobs:
            jobs = sorted({s.job_id for s in batch})
            await conn.execute(cast(Any, sql("lock_jobs")), {"jobs": jobs})
        if pace["accounts"]:
            await conn.execute(cast(Any, sql("slow_accounts")), pace)
        if recovered:
            await conn.execute(
                cast(Any, sql("recover_accounts")),
                {"accounts": sorted(recovered), "calls": [recovered[a] for a in sorted(recovered)]},
            )
        # calls before items before shards, as the rescue does
        await conn.execute(cast(Any, sql("settle_calls")), calls)
        done = await conn.execute(cast(Any, sql("settle")), items)
    return {row.job_id for row in await done.fetchall() if row.shard_done}
