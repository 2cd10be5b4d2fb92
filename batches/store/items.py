"""Guarded changes of items that a person asked for: retry and reconcile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection

from batches.domain.categories import Category
from batches.domain.states import ItemState, ShardStatus, shard_sources

from .events import Actor, actor_id, actor_name
from .queries import sql

#: most items of one transaction: claims wait for as long as it holds the job
CHUNK = 5_000


@dataclass(frozen=True, slots=True)
class Selection:
    """Which failed items are meant; None does not narrow."""

    categories: tuple[str, ...]
    code: str | None = None
    shard_id: int | None = None
    item_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Retried:
    """What a retry moved; `resent` of them had certainly left before."""

    moved: int
    resent: int


def clock() -> datetime:
    """The database's time of day, which stamps the items."""
    with connection.cursor() as cursor:
        cursor.execute("select clock_timestamp()")
        found: datetime = cursor.fetchone()[0]
        return found


def retry_items(
    *, job_id: int, selection: Selection, began: datetime, actor: Actor, reason: str
) -> Retried:
    """failed → pending for at most `CHUNK` items that failed before `began`; shards reopen."""
    reopened = shard_sources(ShardStatus.RUNNING) - {ShardStatus.PAUSED, ShardStatus.PENDING}
    params: dict[str, Any] = {
        "job": job_id,
        "categories": list(selection.categories),
        "code": selection.code,
        "shard": selection.shard_id,
        "items": None if selection.item_ids is None else list(selection.item_ids),
        "began": began,
        "most": CHUNK,
        "reopened": [status.value for status in reopened],
        "actor": actor_id(actor),
        "actor_name": actor_name(actor),
        "reason": reason,
    }
    with connection.cursor() as cursor:
        # 1. which, 2. their shards in id order, 3. the items themselves
        cursor.execute(sql("pick_failed"), params)
        picked, shards = cursor.fetchone()
        if not picked:
            return Retried(moved=0, resent=0)
        cursor.execute(sql("lock_shards"), {"shards": shards})
        cursor.execute(sql("retry_items"), params | {"picked": picked})
        moved, resent = cursor.fetchone()
        return Retried(moved=moved, resent=resent)


def reconcile_items(
    *,
    job_id: int,
    calls: Mapping[int, int | None],
    delivered: bool,
    actor: Actor,
    reason: str,
) -> int:
    """submitted → confirmed or failed by a person's finding; how many were in a state for it.

    `calls` names the items, each with the call that the finding is about, None for any.
    """
    wanted = sorted(calls)
    with connection.cursor() as cursor:
        cursor.execute(
            sql("reconcile_items"),
            {
                "job": job_id,
                "items": wanted,
                "calls": [calls[item] for item in wanted],
                "state": (ItemState.CONFIRMED if delivered else ItemState.FAILED).value,
                "category": None if delivered else Category.NOT_DELIVERED.value,
                "kind": "item.delivered" if delivered else "item.not_delivered",
                "actor": actor_id(actor),
                "actor_name": actor_name(actor),
                "reason": reason,
            },
        )
        return int(cursor.fetchone()[0])
