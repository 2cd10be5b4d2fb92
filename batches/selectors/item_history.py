"""What people decided about one item: by itself, or with its whole job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from batches.domain.categories import Category, category_info
from batches.domain.states import ItemState
from batches.models import Call, Event, Item

from .events import PAGE_SIZE, EventLine, line_of

#: acts on a job that may have decided an item; the latest so many are looked at
_OF_JOB = ("job.confirmed", "job.retried", "job.cancelling", "job.terminating")
_LOOKED_AT = 200


def item_history(item: Item, calls: Sequence[Call]) -> list[EventLine]:
    """Oldest first: the start of its job, findings, retries that took it up, what gave it up.

    `calls` are those that carried it, oldest first.
    """
    own = list(Event.objects.filter(item_id=item.pk).order_by("-id")[:PAGE_SIZE])
    of_job = Event.objects.filter(job_id=item.job_id, item_id=None, kind__in=_OF_JOB)
    acts = list(of_job.order_by("-id")[:_LOOKED_AT])[::-1]
    found = [
        *own,
        *(act for act in acts if act.kind == "job.confirmed"),
        *_retries(item, calls, own, [act for act in acts if act.kind == "job.retried"]),
        *_ends(item, calls, acts),
    ]
    return [line_of(event) for event in sorted(found, key=lambda event: (event.at, event.pk))]


def _ends(item: Item, calls: Sequence[Call], acts: Sequence[Event]) -> Iterator[Event]:
    """The cancel that gave the item up; terminations that cut a call of it off."""
    if item.state == ItemState.ABANDONED and item.settled_at:
        yield from _latest(acts, "job.cancelling", until=item.settled_at)
    for call in calls:
        if call.category == Category.ABORTED and call.lost_at:
            yield from _latest(acts, "job.terminating", since=call.sent_at, until=call.lost_at)


def _latest(
    acts: Sequence[Event], kind: str, *, until: datetime, since: datetime | None = None
) -> Sequence[Event]:
    fit = [
        act
        for act in acts
        if act.kind == kind and act.at <= until and (since is None or act.at > since)
    ]
    return fit[-1:]


def _retries(
    item: Item, calls: Sequence[Call], own: Sequence[Event], retries: Sequence[Event]
) -> Iterator[Event]:
    """Those that took the item up.

    A retry writes no line for each item. It took this one up if it asked for such as this was by
    then (`_failure`), and if the item went on afterwards.
    """
    taken_up: datetime | None = None
    for retry in retries:
        asked = retry.data
        began = datetime.fromisoformat(asked["began"]) if "began" in asked else retry.at
        if any(event.kind == "item.retried" and began <= event.at <= retry.at for event in own):
            taken_up = began
            continue  # a line of its own tells of it
        before = [call for call in calls if call.sent_at < began]
        went_on = len(before) < len(calls) or item.state != ItemState.FAILED
        failure = _failure(item, before, own, since=taken_up, until=began)
        if failure is not None and went_on and _meant(asked, item, *failure):
            taken_up = began
            yield retry


def _failure(
    item: Item,
    before: Sequence[Call],
    own: Sequence[Event],
    *,
    since: datetime | None,
    until: datetime,
) -> tuple[str, str] | None:
    """Category and code with which the item had failed for good by then; None if it had not.

    The same rules by which a lane decides whether it tries again by itself (`domain.decisions`).
    """
    if not before:
        return None
    last = before[-1]
    if since is not None and last.sent_at < since:
        return None  # taken up already, and not sent since
    if any(event.kind == "item.not_delivered" and last.sent_at < event.at < until for event in own):
        return Category.NOT_DELIVERED, ""
    if last.answered_at is None or last.answered_at >= until:
        return None
    kind = last.category or ""
    match last.outcome:
        case "not_sent":
            final = kind == Category.RENDER
        case "refused" | "mixed" if kind == Category.RATE_LIMITED:
            final = False
        case "refused" | "mixed" if category_info(kind).auto_retry:
            tries = [
                call
                for call in before
                if call.outcome in ("refused", "mixed")
                and call.category != Category.RATE_LIMITED
                and (since is None or call.sent_at >= since)
            ]
            final = len(tries) >= item.job.max_attempts
        case outcome:
            final = outcome in ("refused", "mixed")
    return (kind, last.code or "") if final else None


def _meant(asked: Mapping[str, Any], item: Item, category: str, code: str) -> bool:
    """Whether a retry that asked for this took up an item that had failed so."""
    named = asked.get("item_ids")
    by_name = asked.get("items") is not None
    return (
        asked.get("shard") in (None, item.shard.ordinal)
        and asked.get("code") in (None, code)
        and (named is None or item.pk in named)
        and (
            asked["category"] == category
            if asked.get("category") is not None
            else by_name or category_info(category).operator_retry
        )
    )
