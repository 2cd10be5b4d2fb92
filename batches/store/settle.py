"""The settle: records outcomes, moves shards, returns budget, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, cast

from batches.domain.decisions import Decision

from .arrays import EMPTY, numbers, texts, words
from .connections import Connection, together
from .queries import sql

_CLIP = 500


@dataclass(slots=True)
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


def _code(decision: Decision) -> str | None:
    return decision.code[:40] if decision.code else None


def _is_plain(decision: Decision) -> bool:
    """Whether it says no more than that the send was taken, as nearly all do."""
    return (
        decision.outcome == "accepted"
        and decision.category is None
        and decision.code is None
        and decision.message is None
        and decision.counted
        and not (decision.wait or decision.refund or decision.bad)
    )


_PLAIN_ITEM = dict.fromkeys(
    ("categories", "codes", "messages", "waits", "counted", "refunds", "bads", "reached"), EMPTY
)
_PLAIN_CALL = dict.fromkeys(("categories", "codes", "messages"), EMPTY)


def _item_columns(batch: Sequence[Settled], *, plain: bool) -> dict[str, str]:
    # in id order, as a person's findings lock them
    rows = sorted(
        (
            (item, s.call_id, decision)
            for s in batch
            for item, decision in zip(s.item_ids, s.decisions, strict=True)
        ),
        key=itemgetter(0, 1),
    )
    decisions = [decision for _, _, decision in rows]
    columns = {
        "items": numbers(item for item, _, _ in rows),
        "calls": numbers(call for _, call, _ in rows),
        "fates": words(d.fate for d in decisions),
        "msg_ids": texts(d.msg_id[:128] if d.msg_id else None for d in decisions),
    }
    if plain:
        return columns | _PLAIN_ITEM
    return columns | {
        "categories": texts(d.category for d in decisions),
        "codes": texts(map(_code, decisions)),
        "messages": texts(_clip(d.message) for d in decisions),
        "waits": numbers(d.wait for d in decisions),
        "counted": numbers(d.counted for d in decisions),
        "refunds": numbers(d.refund for d in decisions),
        "bads": numbers(d.bad for d in decisions),
        # a refusal comes from the gateway; what was never sent has been no send
        "reached": numbers(d.outcome == "refused" for d in decisions),
    }


def _call_columns(batch: Sequence[Settled], *, plain: bool) -> dict[str, str]:
    def outcome(settled: Settled) -> str:
        first, *others = settled.decisions
        return first.outcome if all(d.outcome == first.outcome for d in others) else "mixed"

    columns = {
        "calls": numbers(s.call_id for s in batch),
        "outcomes": words(map(outcome, batch)),
        "statuses": numbers(s.http_status for s in batch),
        "durations": numbers(s.duration_ms for s in batch),
    }
    if plain:
        return columns | _PLAIN_CALL
    worst = [next((d for d in s.decisions if d.category), s.decisions[0]) for s in batch]
    return columns | {
        "categories": texts(d.category for d in worst),
        "codes": texts(map(_code, worst)),
        "messages": texts(_clip(d.message) for d in worst),
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
    plain = all(_is_plain(d) for s in batch for d in s.decisions)
    items = _item_columns(batch, plain=plain)
    calls = _call_columns(batch, plain=plain)
    pace = _pace_columns(batch)
    # A refund changes the job row, a return to `pending` depends on the job's state: only then
    # are the jobs locked, so that plain successes never wait for one.
    needs_jobs = any(d.refund for s in batch for d in s.decisions)
    recovered = {
        s.account_id: s.call_id
        for s in batch
        if s.throttled and s.decisions[0].outcome == "accepted"
    }
    async with together(conn):
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
