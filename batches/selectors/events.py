"""The timeline of a job and the audit: events, newest first, by keyset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any

from django.utils import timezone
from django.utils.formats import number_format
from django.utils.translation import gettext as _

from batches.domain.event_kinds import event_label
from batches.domain.states import PAUSE_LABELS, PauseReason
from batches.domain.text import N_
from batches.models import Event, Item, Job

PAGE_SIZE = 50


@dataclass(frozen=True, slots=True)
class EventLine:
    """One event in words; `detail` says what changed, in the reader's language."""

    event: Event
    label: str
    detail: str

    @property
    def tone(self) -> str:
        return _TONES.get(self.event.kind, "")


_TONES: Mapping[str, str] = {
    "job.terminating": "bad",
    "job.terminated": "bad",
    "job.rejected": "bad",
    "job.calls_lost": "doubt",
    "job.cannot_compile": "bad",
    "job.paused": "warn",
    "job.pausing": "warn",
    "shard.paused": "warn",
    "job.completed": "ok",
    "job.confirmed": "info",
    "job.resumed": "info",
}


def line_of(event: Event) -> EventLine:
    return EventLine(event, event_label(event.kind), _detail(event.data))


def _number(value: int | None) -> str:
    return _("不限") if value is None else str(number_format(value, force_grouping=True))


def _detail(data: Mapping[str, Any]) -> str:
    before, after = data.get("before") or {}, data.get("after") or {}
    for column, (text, shown) in _CHANGES.items():
        if column in after:
            return _(text) % {
                "before": shown(before.get(column)),
                "after": shown(after[column]),
            }
    if "window_from" in after:
        return f"{_hours(before)} → {_hours(after)}"
    for key, text in _COUNTS:
        if isinstance(data.get(key), int) and data[key]:
            return _(text) % {"n": _number(data[key])}
    return _(_OWN_PAUSES[data["reason"]]) if data.get("reason") in _OWN_PAUSES else ""


def _start(value: str | None) -> str:
    if value is None:
        return _("立即")
    return f"{timezone.localtime(datetime.fromisoformat(value)):%m-%d %H:%M}"


def _hours(columns: Mapping[str, Any]) -> str:
    opens, closes = columns.get("window_from"), columns.get("window_to")
    return f"{opens[:5]}–{closes[:5]}" if opens and closes else _("全天")


#: column of `before` and `after` → the sentence, and how a value of it is shown
_CHANGES: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "rate_limit_per_min": (N_("%(before)s → %(after)s 条/分"), _number),
    "budget_limit": (N_("%(before)s → %(after)s 条"), _number),
    "priority": ("%(before)s → %(after)s", _number),
    "start_at": ("%(before)s → %(after)s", _start),
}
#: why the system paused; a person's pause shows that person
_OWN_PAUSES: Mapping[str, str] = {
    reason.value: text
    for reason, text in PAUSE_LABELS.items()
    if reason is not PauseReason.OPERATOR
}
#: the one number of an event that is worth showing, the first that it has
_COUNTS: tuple[tuple[str, str], ...] = (
    ("inflight", N_("在途 %(n)s 条")),
    ("stage", N_("检查点 %(n)s 条")),
    ("calls", N_("%(n)s 次调用")),
    ("retried", N_("%(n)s 条")),
    ("count", N_("%(n)s 条")),
    ("items", N_("%(n)s 条")),
    ("total", N_("共 %(n)s 条")),
)


def event_lines(*, job: Job, limit: int) -> list[EventLine]:
    """The latest events of a job, of its items not each one."""
    found = Event.objects.filter(job=job, item_id=None).select_related("account").order_by("-id")
    return [line_of(event) for event in found[:limit]]


def item_events(item: Item) -> list[EventLine]:
    """What people did about one item."""
    found = Event.objects.filter(item_id=item.pk).order_by("id")[:PAGE_SIZE]
    return [line_of(event) for event in found]


@dataclass(frozen=True, slots=True)
class EventPage:
    """`next_before` is the id to go on from, None at the end."""

    lines: Sequence[EventLine]
    next_before: int | None


def audit_page(
    *,
    job_id: int | None = None,
    actor: int | str | None = None,
    kind: str = "",
    first_day: date | None = None,
    last_day: date | None = None,
    before: int | None = None,
) -> EventPage:
    """Newest first; `before` is the `next_before` of the page above.

    Days are those of the installation's zone, both included.
    """
    found = Event.objects.select_related("job", "account").order_by("-id")
    if job_id is not None:
        found = found.filter(job_id=job_id)
    if isinstance(actor, int):
        found = found.filter(actor_id=actor)
    elif actor == SYSTEM:
        found = found.filter(actor=None, actor_name="")
    if kind:
        found = found.filter(kind=kind)
    if first_day is not None:
        found = found.filter(at__gte=_midnight(first_day))
    if last_day is not None:
        found = found.filter(at__lt=_midnight(last_day + timedelta(days=1)))
    if before is not None:
        found = found.filter(id__lt=before)
    events = list(found[: PAGE_SIZE + 1])
    more = len(events) > PAGE_SIZE
    events = events[:PAGE_SIZE]
    return EventPage([line_of(event) for event in events], events[-1].pk if more else None)


def _midnight(day: date) -> datetime:
    return timezone.make_aware(datetime.combine(day, time.min))


#: stands for "nobody in person" in the audit's filter
SYSTEM = "-"
