"""How much lane there is, and how much there is to do."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.db import connection

from .queries import sql


@dataclass(frozen=True, slots=True)
class LaneLoad:
    """Live lanes, and accounts that could run."""

    live_lanes: int
    runnable_accounts: int


def lane_load() -> LaneLoad:
    """Counted now."""
    with connection.cursor() as cursor:
        cursor.execute(sql("share"), {"tz": settings.TIME_ZONE})
        lanes, accounts = cursor.fetchone()
    return LaneLoad(lanes, accounts)


def prune_lanes() -> int:
    """Forget turns that ended or were lost more than a day ago; returns how many."""
    with connection.cursor() as cursor:
        cursor.execute(sql("prune_lanes"))
        return int(cursor.rowcount)
