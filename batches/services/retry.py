"""Failed items are taken up again; what that would be is told in `retry_preview`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _

from batches.domain.errors import WrongStateError
from batches.domain.states import JobStatus
from batches.domain.verbs import VERBS, Verb
from batches.models import Job
from batches.store import items as item_store
from batches.store import jobs as store
from batches.store.events import Actor
from batches.store.items import Selection

from .acting import Act, acting, fresh
from .retry_preview import failed_by_category, selection_of

#: most items that the event of a retry names one by one
NAMED_MOST = 200


def retry_failed(
    *,
    job_id: int,
    actor: Actor,
    reason: str = "",
    category: str | None = None,
    code: str | None = None,
    shard_ordinal: int | None = None,
    item_ids: Collection[int] | None = None,
    expected_version: int | None = None,
) -> Job:
    """failed → pending, in bounded transactions; a completed job runs again with the first.

    By default only categories for which trying again makes sense; a named category or named
    items override that, but never for items that might have been delivered.
    """
    # The first transaction decides whether anything is retried at all. The others take the job
    # anew, so that claims, a pause and a cancel come in between.
    with acting(
        Verb.RETRY_FAILED,
        job_id=job_id,
        actor=actor,
        reason=reason,
        expected_version=expected_version,
    ) as act:
        selection = selection_of(act.job, category, code, shard_ordinal, item_ids)
        run = _Run(
            parts=_parts(selection),
            began=item_store.clock(),
            asked={
                "category": category,
                "code": code,
                "shard": shard_ordinal,
                "items": None if item_ids is None else len(set(item_ids)),
                **_named(item_ids),
            },
        )
        if not run.step(act):
            raise _nothing(act.job, selection, category)
    try:
        while run.parts:
            with acting(Verb.RETRY_FAILED, job_id=job_id, actor=actor, reason=reason) as act:
                run.step(act)
    except WrongStateError:
        pass  # cancelled or terminated meanwhile: what is back stays, the rest stays failed
    finally:
        if not run.logged:
            act.log("job.retried", unfinished=True, **run.data)
    return fresh(job_id)


@dataclass(slots=True)
class _Run:
    """A retry on its way: what is left to look at, and what was taken up so far."""

    parts: list[Selection]
    began: datetime
    asked: dict[str, Any]
    moved: int = 0
    resent: int = 0
    logged: bool = False

    @property
    def data(self) -> dict[str, Any]:
        began = self.began.isoformat()
        return {"count": self.moved, "resent": self.resent, "began": began, **self.asked}

    def step(self, act: Act) -> int:
        """Take up some more under the job's lock; the last step writes the one event."""
        first = self.moved == 0
        moved = 0
        while self.parts and not moved:
            done = item_store.retry_items(
                job_id=act.job.pk,
                selection=self.parts[0],
                began=self.began,
                actor=act.actor,
                reason=act.reason,
            )
            moved = done.moved
            self.moved, self.resent = self.moved + moved, self.resent + done.resent
            if moved < item_store.CHUNK:
                del self.parts[0]
        if not self.moved:
            return 0
        # a job may even complete between two steps
        reopens = act.status is JobStatus.COMPLETED and moved > 0
        if reopens:
            act.done(store.resume_job(job_id=act.job.pk))
        elif first:
            act.done(store.change_job(job_id=act.job.pk, sources=VERBS[act.verb].sources))
        if self.parts:
            if reopens:
                act.log_move("job.running", JobStatus.RUNNING)
        elif reopens:
            act.log_move("job.retried", JobStatus.RUNNING, **self.data)
        else:
            act.log("job.retried", **self.data)
        self.logged = not self.parts
        return moved


def _named(item_ids: Collection[int] | None) -> dict[str, Any]:
    """Items named one by one, for their own histories; what a person ticked is never more."""
    if item_ids is None or len(item_ids) > NAMED_MOST:
        return {}
    return {"item_ids": sorted(set(item_ids))}


def _parts(selection: Selection) -> list[Selection]:
    """Items named one by one go in portions; any others are found a portion at a time."""
    if selection.item_ids is None:
        return [selection]
    ids = sorted(set(selection.item_ids))
    size = item_store.CHUNK
    return [
        replace(selection, item_ids=tuple(ids[at : at + size])) for at in range(0, len(ids), size)
    ]


def _nothing(job: Job, selection: Selection, category: str | None) -> WrongStateError:
    found = failed_by_category(job, selection)
    left = sum(count for name, count in found if category in (None, name))
    if left:
        return WrongStateError(
            _("没有可以重试的条目：失败的 %(count)s 条都属于不宜重试的分类，请按建议处理。")
            % {"count": left}
        )
    return WrongStateError(_("没有可以重试的条目：所选范围内没有失败的条目。"))
