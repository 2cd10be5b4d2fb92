"""Which failed items a retry means, and what it would do, before it is done."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from django.db.models import Count, Q

from batches.domain.categories import CATEGORIES, IN_DOUBT, Category, category_info
from batches.domain.errors import InvalidInputError
from batches.domain.limits import NAMED_ITEMS_MAX
from batches.domain.problems import Problem
from batches.domain.states import ItemState
from batches.domain.text import N_
from batches.models import Item, Job, Shard
from batches.store.items import Selection


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
    selection = selection_of(job, category, code, shard_ordinal, item_ids)
    room = None if job.budget_limit is None else job.budget_limit - job.budget_used
    will: list[RetryGroup] = []
    will_not: list[RetryGroup] = []
    for name, count in failed_by_category(job, selection, only=category):
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


def selection_of(
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
    if item_ids is not None and len(item_ids) > NAMED_ITEMS_MAX:
        raise InvalidInputError(
            Problem(
                "too_many_items",
                N_("一次最多选 %(most)s 条；更多请按分类重试。"),
                {"most": NAMED_ITEMS_MAX},
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
                    N_("「%(name)s」的条目可能已经送达，不能直接重试。请先在「待核实」核实。"),
                    {"name": category},
                )
            )
        return (category,)
    if by_id:
        return tuple(name.value for name in Category if name not in IN_DOUBT)
    return tuple(name.value for name, info in CATEGORIES.items() if info.operator_retry)


def failed_by_category(
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
