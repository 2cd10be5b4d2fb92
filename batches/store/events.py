"""The audit: one event per act, written in the transaction of the act itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User

from batches.models import Event


def actor_name(actor: User | None) -> str:
    """How the audit names a person for good; '' is the system or the command line."""
    if actor is None:
        return ""
    return (actor.get_full_name() or actor.get_username())[:150]


def add_event(
    *,
    kind: str,
    job_id: int | None = None,
    shard_ordinal: int | None = None,
    item_id: int | None = None,
    account_id: int | None = None,
    actor: User | None = None,
    actor_name: str = "",
    reason: str = "",
    data: Mapping[str, Any] | None = None,
) -> Event:
    """Append one line; `actor_name` is only for an actor that is no user."""
    return Event.objects.create(
        kind=kind,
        job_id=job_id,
        shard_ordinal=shard_ordinal,
        item_id=item_id,
        account_id=account_id,
        actor=actor,
        actor_name=actor_name or _name(actor),
        reason=reason[:300],
        data=dict(data or {}),
    )


_name = actor_name  # the parameter of the same name hides the function
