"""The audit: one event per act, written in the transaction of the act itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Required, TypeAlias, TypedDict, Unpack

from django.contrib.auth.models import User

from batches.domain.actors import ACTOR_NAME_MAX, Shell, shell_of
from batches.models import Event

#: a user of the console, somebody at the command line, or the system itself
Actor: TypeAlias = User | Shell | None


def person_of(actor: Actor) -> User | None:
    """The actor where it is a user of the console."""
    return actor if isinstance(actor, User) else None


def actor_id(actor: Actor) -> int | None:
    return actor.pk if isinstance(actor, User) else None


def actor_name(actor: Actor) -> str:
    """How the audit names somebody for good; '' is the system itself."""
    if actor is None:
        return ""
    if isinstance(actor, Shell):
        return actor.stored_name
    full = actor.get_full_name()
    # a sign-in name has no colon, so that nobody can call themselves a command line
    known = full and not shell_of(full)
    return (full if known else actor.get_username())[:ACTOR_NAME_MAX]


class Line(TypedDict, total=False):
    """What one line of the audit says; `kind` always."""

    kind: Required[str]
    job_id: int | None
    shard_ordinal: int | None
    item_id: int | None
    account_id: int | None
    actor: Actor
    reason: str
    data: Mapping[str, Any]


def new_event(**line: Unpack[Line]) -> Event:
    """One line, not yet written."""
    actor = line.get("actor")
    return Event(
        kind=line["kind"],
        job_id=line.get("job_id"),
        shard_ordinal=line.get("shard_ordinal"),
        item_id=line.get("item_id"),
        account_id=line.get("account_id"),
        actor=person_of(actor),
        actor_name=actor_name(actor),
        reason=line.get("reason", "")[:300],
        data=dict(line.get("data", {})),
    )


def add_event(**line: Unpack[Line]) -> Event:
    """Append one line."""
    event = new_event(**line)
    event.save(force_insert=True)
    return event


def add_events(lines: Iterable[Event]) -> None:
    """Append many lines at once."""
    Event.objects.bulk_create(lines, batch_size=1000)
