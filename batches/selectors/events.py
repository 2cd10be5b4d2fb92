"""The timeline of a job and the audit: events, newest first, by keyset."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

from django.db.models import Q
from django.utils import timezone

from batches.domain.actors import SHELL_SIGN
from batches.domain.event_kinds import event_label
from batches.models import Account, Event, Job

from .event_details import detail_of

PAGE_SIZE = 50
#: most accounts that one filter names
ACCOUNTS_MAX = 100


@dataclass(frozen=True, slots=True)
class EventLine:
    """One event in words; `detail` says what changed, in the reader's language."""

    event: Event
    label: str
    detail: str

    @property
    def tone(self) -> str:
        return _TONES.get(self.event.kind, "")

    @property
    def object(self) -> str:
        """The gateway, user, role or deleted account that it is about, as it was called then."""
        return str((self.event.data.get("object") or {}).get("name", ""))


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


def line_of(event: Event, *, hidden: Collection[str] = ()) -> EventLine:
    """`hidden` as for `audit_page`: a field of such a name is such a thing's address."""
    return EventLine(event, event_label(event.kind), detail_of(event, without=hidden))


def event_lines(*, job: Job, limit: int) -> list[EventLine]:
    """The latest events of a job, of its items not each one."""
    found = Event.objects.filter(job=job, item_id=None).select_related("account").order_by("-id")
    return [line_of(event) for event in found[:limit]]


@dataclass(frozen=True, slots=True)
class EventPage:
    """`next_before` is the id to go on from, None at the end."""

    lines: Sequence[EventLine]
    next_before: int | None


def audit_page(
    *,
    job_id: int | None = None,
    account: str = "",
    actor: int | str | None = None,
    kind: str = "",
    text: str = "",
    first_day: date | None = None,
    last_day: date | None = None,
    before: int | None = None,
    hidden: Collection[str] = (),
) -> EventPage:
    """Newest first; `before` is the `next_before` of the page above.

    `account` is the guid or the name of accounts; days are those of the installation's zone, both
    included. `text` is looked for in the reasons and in the names of those who acted, anywhere in
    them: no index helps, so a text that is rare reads as far back as the other filters let it.
    `hidden` are families of kinds that the reader may not see.
    """
    found = Event.objects.select_related("job", "account").order_by("-id")
    if job_id is not None:
        found = found.filter(job_id=job_id)
    if account:
        found = found.filter(account_id__in=_accounts(account))
    if isinstance(actor, int):
        found = found.filter(actor_id=actor)
    elif actor == SYSTEM:
        found = found.filter(actor=None, actor_name="")
    elif actor == SHELL:
        found = found.filter(actor=None, actor_name__startswith=SHELL_SIGN)
    if kind:
        found = found.filter(kind=kind)
    if text:
        found = found.filter(Q(reason__icontains=text) | Q(actor_name__icontains=text))
    if first_day is not None:
        found = found.filter(at__gte=_midnight(first_day))
    if last_day is not None:
        found = found.filter(at__lt=_midnight(last_day + timedelta(days=1)))
    if before is not None:
        found = found.filter(id__lt=before)
    for family in hidden:
        found = found.exclude(kind__startswith=f"{family}.")
    events = list(found[: PAGE_SIZE + 1])
    more = len(events) > PAGE_SIZE
    events = events[:PAGE_SIZE]
    lines = [line_of(event, hidden=hidden) for event in events]
    return EventPage(lines, events[-1].pk if more else None)


def _accounts(text: str) -> list[int]:
    """Accounts of that guid or name; gateways may share a guid, and people a name."""
    found = Account.objects.filter(Q(guid=text) | Q(name=text)).order_by("pk")
    return list(found.values_list("pk", flat=True)[:ACCOUNTS_MAX])


def last_change(*, family: str, row_id: int, name: str) -> Event | None:
    """The latest line that tells of a change of this field of an account, gateway, user or role."""
    found = Event.objects.filter(kind=f"{family}.changed").order_by("-id")
    if family == "account":
        found = found.filter(account_id=row_id)
    else:
        found = found.filter(data__object__id=row_id)
    return found.filter(data__after__has_key=name).first()


def _midnight(day: date) -> datetime:
    return timezone.make_aware(datetime.combine(day, time.min))


#: in the audit's filter: nobody in person, and anybody at the command line
SYSTEM, SHELL = "-", "cli"
