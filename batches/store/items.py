"""Guarded changes of items that a person asked for: retry and reconcile."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.db import connection

from batches.domain.categories import Category
from batches.domain.states import ItemState, ShardStatus, shard_sources

from .events import actor_name
from .queries import sql

RETRY_CHUNK = 100_000


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


def retry_items(*, job_id: int, selection: Selection, actor: User | None, reason: str) -> Retried:
    """failed → pending, in chunks within the caller's transaction; shards reopen."""
    reopened = shard_sources(ShardStatus.RUNNING) - {ShardStatus.PAUSED, ShardStatus.PENDING}
    params: dict[str, Any] = {
        "job": job_id,
        "categories": list(selection.categories),
        "code": selection.code,
        "shard": selection.shard_id,
        "items": None if selection.item_ids is None else list(selection.item_ids),
        "reopened": [status.value for status in reopened],
        "most": RETRY_CHUNK,
        "actor": actor.pk if actor else None,
        "actor_name": actor_name(actor),
        "reason": reason,
    }
    moved = resent = 0
    with connection.cursor() as cursor:
        cursor.execute(sql("lock_failed_shards"), params)
        while True:
            cursor.execute(sql("retry_items"), params)
            step, twice = cursor.fetchone()
            moved, resent = moved + step, resent + twice
            if step < RETRY_CHUNK:
                return Retried(moved=moved, resent=resent)


def reconcile_items(
    *,
    job_id: int,
    item_ids: Collection[int],
    delivered: bool,
    actor: User | None,
    reason: str,
) -> int:
    """submitted → confirmed or failed by a person's finding; how many were in a state for it."""
    with connection.cursor() as cursor:
        cursor.execute(
            sql("reconcile_items"),
            {
                "job": job_id,
                "items": sorted(set(item_ids)),
                "state": (ItemState.CONFIRMED if delivered else ItemState.FAILED).value,
                "category": None if delivered else Category.NOT_DELIVERED.value,
                "kind": "item.delivered" if delivered else "item.not_delivered",
                "actor": actor.pk if actor else None,
                "actor_name": actor_name(actor),
                "reason": reason,
            },
        )
        return int(cursor.fetchone()[0])
