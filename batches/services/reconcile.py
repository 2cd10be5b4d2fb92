"""What a person found out about items that nobody confirmed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from django.utils.translation import gettext as _

from batches.domain.errors import InvalidInputError, WrongStateError
from batches.domain.limits import NAMED_ITEMS_MAX
from batches.domain.problems import Problem
from batches.domain.text import N_
from batches.domain.verbs import Verb
from batches.models import Job
from batches.store import items as item_store
from batches.store.events import Actor

from .acting import acting, fresh


@dataclass(frozen=True, slots=True)
class Marked:
    """`skipped` items were settled, in flight or sent again by then, or are of another job."""

    job: Job
    marked: int
    skipped: int


def mark_items(
    *,
    job_id: int,
    item_ids: Collection[int],
    delivered: bool,
    actor: Actor,
    reason: str,
    calls: Mapping[int, int] | None = None,
) -> Marked:
    """Settle unconfirmed items by an operator's finding; one audit line for each.

    Delivered → confirmed; not delivered → failed(not_delivered), which may be retried. The
    send stays spent. `calls` tells of an item which call the finding is about: if it was sent
    again since, it is skipped. Raises `WrongStateError` if none of the items waits for a finding.
    """
    wanted = sorted(set(item_ids))
    if not wanted:
        raise InvalidInputError(Problem("no_items", N_("没有选择条目。")))
    if len(wanted) > NAMED_ITEMS_MAX:
        raise InvalidInputError(
            Problem("too_many_items", N_("一次最多选 %(most)s 条。"), {"most": NAMED_ITEMS_MAX})
        )
    calls = calls or {}
    marked = 0
    # in bounded transactions, so that claims never wait long for the job
    for at in range(0, len(wanted), item_store.CHUNK):
        part = wanted[at : at + item_store.CHUNK]
        with acting(Verb.RECONCILE, job_id=job_id, actor=actor, reason=reason) as act:
            marked += item_store.reconcile_items(
                job_id=job_id,
                calls={item: calls.get(item) for item in part},
                delivered=delivered,
                actor=actor,
                reason=act.reason,
            )
            if not marked and part[-1] == wanted[-1]:
                raise WrongStateError(
                    _("所选条目都不在等待核实：可能已被确认、已被他人核实，或还在等网关应答。")
                )
    return Marked(job=fresh(job_id), marked=marked, skipped=len(wanted) - marked)
