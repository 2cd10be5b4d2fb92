"""Failed items are taken up again: which would be, which not and why, and the act itself."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count, Q
from django.utils.translation import gettext as _

from batches.domain.categories import CATEGORIES, IN_DOUBT, Category, category_info
from batches.domain.errors import InvalidInputError, WrongStateError
from batches.domain.problems import Problem
from batches.domain.states import ItemState, JobStatus
from batches.domain.text import N_
from batches.domain.verbs import VERBS, Verb
from batches.models import Item, Job, Shard
from batches.store import items as item_store
from batches.store import jobs as store
from batches.store.items import Selection

from .acting import Act, acting, fresh

#: most items that one request may name one by one
MOST_IDS = 50_000


@dataclass(frozen=True, slots=True)
class RetryGroup:
    """Failed items of one category; texts are catalogue texts."""

    category: str
    label: str
    count: int
    #: why these stay failed; '' for those that would be tried again
    why: str = ""


@dataclass(frozen=True, slots=True)
class RetryPreview:
    """What a retry would do now."""

    will: tuple[RetryGroup, ...]
    will_not: tuple[RetryGroup, ...]
    #: sends that the budget still allows; None = no limit
    budget_room: int | None

    @property
    def count(self) -> int:
        return sum(group.count for group in self.will)

    @property
    def left_out(self) -> int:
        return sum(group.count for group in self.will_not)

    @property
    def over_budget(self) -> int:
        """How many of them the budget would not allow before it is raised."""
        return 0 if self.budget_room is None else max(0, self.count - self.budget_room)


def preview_retry(
    *,
    job_id: int,
    category: str | None = None,
    code: str | None = None,
    shard_ordinal: int | None = None,
    item_ids: Collection[int] | None = None,
) -> RetryPreview:
    """Counts by category of what `retry_failed` with the same arguments would take up.

    Raises `InvalidInputError`.
    """
    job = Job.objects.filter(pk=job_id).first()
    if job is None:
        raise InvalidInputError(
            Problem("unknown_job", N_("没有编号为 %(id)s 的作业。"), {"id": job_id})
        )
    selection = _selection(job, category, code, shard_ordinal, item_ids)
    room = None if job.budget_limit is None else job.budget_limit - job.budget_used
    will: list[RetryGroup] = []
    will_not: list[RetryGroup] = []
    for name, count in _failed_by_category(job, selection, only=category):
        info = category_info(name)
        if name in selection.categories:
            will.append(RetryGroup(category=name, label=info.label, count=count))
        elif category is None or category == name:
            will_not.append(
                RetryGroup(category=name, label=info.label, count=count, why=info.advice)
            )
    missed = _not_failed(job, selection)
    if missed:
        will_not.append(
            RetryGroup(
                category="",
                label=N_("不是失败状态"),
                count=missed,
                why=N_("只有失败的条目可以重试"),
            )
        )
    return RetryPreview(will=tuple(will), will_not=tuple(will_not), budget_room=room)


def retry_failed(
    *,
    job_id: int,
    actor: User | None,
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
        selection = _selection(act.job, category, code, shard_ordinal, item_ids)
        run = _Run(
            parts=_parts(selection),
            began=item_store.clock(),
            asked={
                "category": category,
                "code": code,
                "shard": shard_ordinal,
                "items": None if item_ids is None else len(set(item_ids)),
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
        return {"count": self.moved, "resent": self.resent, **self.asked}

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


def _parts(selection: Selection) -> list[Selection]:
    """Items named one by one go in portions; any others are found a portion at a time."""
    if selection.item_ids is None:
        return [selection]
    ids = sorted(set(selection.item_ids))
    size = item_store.CHUNK
    return [
        replace(selection, item_ids=tuple(ids[at : at + size])) for at in range(0, len(ids), size)
    ]


def _selection(
    job: Job,
    category: str | None,
    code: str | None,
    shard_ordinal: int | None,
    item_ids: Collection[int] | None,
) -> Selection:
    """Raises `InvalidInputError`: unknown category or shard, no or too many items."""
    shard_id = None
    if shard_ordinal is not None:
        shard_id = (
            Shard.objects.filter(job=job, ordinal=shard_ordinal)
            .values_list("pk", flat=True)
            .first()
        )
        if shard_id is None:
            raise InvalidInputError(
                Problem(
                    "unknown_shard",
                    N_("这个作业没有 %(ordinal)s 号分片。"),
                    {"ordinal": shard_ordinal},
                )
            )
    if item_ids is not None and len(item_ids) > MOST_IDS:
        raise InvalidInputError(
            Problem(
                "too_many_items",
                N_("一次最多选 %(most)s 条；更多请按分类重试。"),
                {"most": MOST_IDS},
            )
        )
    return Selection(
        categories=_categories(category, by_id=item_ids is not None),
        code=code,
        shard_id=shard_id,
        item_ids=None if item_ids is None else tuple(item_ids),
    )


def _categories(category: str | None, *, by_id: bool) -> tuple[str, ...]:
    if category is not None:
        if category not in set(Category):
            raise InvalidInputError(
                Problem("unknown_category", N_("没有失败分类「%(name)s」。"), {"name": category})
            )
        if category in IN_DOUBT:
            raise InvalidInputError(
                Problem(
                    "category_in_doubt",
                    N_("「%(name)s」的条目可能已经送达，不能直接重试。请先在对账队列核实。"),
                    {"name": category},
                )
            )
        return (category,)
    if by_id:
        return tuple(name.value for name in Category if name not in IN_DOUBT)
    return tuple(name.value for name, info in CATEGORIES.items() if info.operator_retry)


def _failed_by_category(
    job: Job, selection: Selection, *, only: str | None = None
) -> Sequence[tuple[str, int]]:
    found = Item.objects.filter(job_id=job.pk, state=ItemState.FAILED)
    if only is not None:
        found = found.filter(category=only)
    if selection.code is not None:
        found = found.filter(
            Q(code=selection.code) if selection.code else Q(code=None) | Q(code="")
        )
    if selection.shard_id is not None:
        found = found.filter(shard_id=selection.shard_id)
    if selection.item_ids is not None:
        found = found.filter(pk__in=selection.item_ids)
    rows = found.values_list("category").annotate(n=Count("pk")).order_by("category")
    return [(name or "", count) for name, count in rows]


def _not_failed(job: Job, selection: Selection) -> int:
    """Of the items named one by one, those that are not failed (any more)."""
    if selection.item_ids is None:
        return 0
    failed = Item.objects.filter(
        job_id=job.pk, state=ItemState.FAILED, pk__in=selection.item_ids
    ).count()
    return len(set(selection.item_ids)) - failed


def _nothing(job: Job, selection: Selection, category: str | None) -> WrongStateError:
    found = _failed_by_category(job, selection)
    left = sum(count for name, count in found if category in (None, name))
    if left:
        return WrongStateError(
            _("没有可以重试的条目：失败的 %(count)s 条都属于不宜重试的分类，请按建议处理。")
            % {"count": left}
        )
    return WrongStateError(_("没有可以重试的条目：所选范围内没有失败的条目。"))
