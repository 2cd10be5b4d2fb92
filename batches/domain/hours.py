"""Allowed hours of a day, and when a set start first falls into them."""

from __future__ import annotations

from datetime import datetime, time, timedelta, tzinfo


def within(at: time, opens: time, closes: time) -> bool:
    """Whether a local time of day is allowed; the hours may span midnight."""
    if opens < closes:
        return opens <= at < closes
    return at >= opens or at < closes


def first_allowed(
    start: datetime, opens: time | None, closes: time | None, zone: tzinfo
) -> datetime:
    """The first moment from `start` on at which the hours allow sending."""
    local = start.astimezone(zone)
    if opens is None or closes is None or within(local.time(), opens, closes):
        return start
    found = local.replace(
        hour=opens.hour, minute=opens.minute, second=opens.second, microsecond=opens.microsecond
    )
    return found if found > local else found + timedelta(days=1)
