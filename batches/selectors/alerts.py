"""Alerts: the open ones, and by keyset those that are over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batches.models import Alert

PAGE_SIZE = 50
#: more open alerts than this are one problem, not many
MOST_OPEN = 200


@dataclass(frozen=True, slots=True)
class AlertPage:
    """`next_before` is the id to go on from, None at the end; open ones on the first page only."""

    open: Sequence[Alert]
    closed: Sequence[Alert]
    next_before: int | None


def alert_page(*, before: int | None = None) -> AlertPage:
    """Newest first."""
    found = Alert.objects.select_related("job", "account").order_by("-id")
    over = found.filter(closed_at__isnull=False)
    if before is not None:
        over = over.filter(id__lt=before)
    closed = list(over[: PAGE_SIZE + 1])
    more = len(closed) > PAGE_SIZE
    closed = closed[:PAGE_SIZE]
    return AlertPage(
        open=list(found.filter(closed_at=None)[:MOST_OPEN]) if before is None else [],
        closed=closed,
        next_before=closed[-1].pk if more else None,
    )
