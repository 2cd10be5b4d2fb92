"""The only writer of alerts: opened and closed by what holds, marked once they were told."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from .queries import run_query


@dataclass(frozen=True, slots=True)
class Changes:
    """What one look changed."""

    opened: int
    closed: int


def watch_alerts(
    *,
    texts: Mapping[str, str],
    pauses: Sequence[str],
    sla: float,
    stuck: float,
    no_lane: float,
    redis_away: bool,
) -> Changes | None:
    """Make the open alerts those whose cause holds now; None if somebody else is at it.

    `texts` by kind; alerts of other kinds are left alone. Times in seconds. `redis_away` tells
    what it is if no lane lives: without Redis none can.
    """
    with transaction.atomic():
        # 1. alone, 2. one statement, whose snapshot begins after that
        if not _locked("watch_turn"):
            return None
        row = run_query(
            "watch_alerts",
            kinds=list(texts),
            texts=list(texts.values()),
            pauses=list(pauses),
            sla=sla,
            stuck=stuck,
            no_lane=no_lane,
            redis_away=redis_away,
            jobs=None,
            tz=settings.TIME_ZONE,
        )[0]
    return Changes(opened=row["opened"], closed=row["closed"])


@dataclass(frozen=True, slots=True)
class Unsent:
    """An alert that nobody was told of yet."""

    id: int
    kind: str
    text: str
    params: Mapping[str, Any]
    job_id: int | None
    job_name: str | None
    account_id: int | None
    account_guid: str | None
    opened_at: datetime
    closed_at: datetime | None


@contextmanager
def alert_turn() -> Iterator[bool]:
    """Whether this session alone tells of alerts now."""
    held = _locked("alert_turn")
    try:
        yield held
    finally:
        if held and connection.connection is not None and not connection.connection.broken:
            run_query("alert_turn_over")


def unsent_alerts(*, most: int) -> list[Unsent]:
    """Open ones first, oldest first."""
    found = run_query("alerts_to_send", most=most)
    # Django's connections hand JSON over as text
    return [Unsent(**row | {"params": json.loads(row["params"])}) for row in found]


def sent_ago() -> float | None:
    """Seconds since something was told last; None if nothing ever was."""
    ago = run_query("alert_sent_ago")[0]["ago"]
    return None if ago is None else float(ago)


def mark_sent(ids: Sequence[int]) -> None:
    """Told; whoever marks one again changes nothing."""
    run_query("alerts_sent", alerts=list(ids))


def _locked(name: str) -> bool:
    (row,) = run_query(name)
    return bool(next(iter(row.values())))
