"""Failed items of one job, or of one of its shards: category → code → items.

Those of a job are found by their own partial index. Those of a shard are found among its items,
of which there are few enough to read, whatever the size of the job and its other failures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.cache import cache
from django.db import connection
from django.db.models import Count, Q

from batches.domain.categories import category_info
from batches.models import Item, Job, Shard
from batches.store.queries import run_query, sql

PAGE_SIZE = 50
#: below this a fresh count costs a few milliseconds
_CHEAP = 20_000
#: seconds for which a count of many failures is kept
_KEEP = 10
_EXPORT_CHUNK = 1000
#: a page over all codes is merged from the heads of so many, the most frequent ones
MERGED = 200
#: most shards to choose from
SHARDS_LISTED = 200


@dataclass(frozen=True, slots=True)
class CategoryCount:
    """How many items of a job failed for one kind of reason."""

    category: str
    count: int
    #: of the largest category, in thousandths of the bar
    width: int
    operator_retry: bool


@dataclass(frozen=True, slots=True)
class CodeCount:
    code: str
    count: int
    width: int


def _with_widths(counts: Sequence[tuple[str, int]]) -> list[tuple[str, int, int]]:
    top = max((count for _, count in counts), default=0)
    return [(key, count, max(7, round(count * 1000 / top))) for key, count in counts]


def shards_with_failures(job: Job, *, chosen: Shard | None = None) -> list[Shard]:
    """To narrow by: most failures first, the chosen one in any case."""
    found = list(
        Shard.objects.filter(job=job, failed__gt=0)
        .select_related("account")
        .order_by("-failed", "ordinal")[:SHARDS_LISTED]
    )
    if chosen is not None and chosen not in found:
        found.insert(0, chosen)
    return found


def _counted(
    job: Job, column: str, *, shard: Shard | None = None, **narrowed: str
) -> list[tuple[str, int]]:
    """Failed items by one column, most frequent first; many are counted rarely."""
    if shard is not None:
        return [
            (row["value"] or "", row["n"])
            for row in run_query(
                f"shard_failures_by_{column}", shard=shard.pk, category=narrowed.get("category")
            )
        ]
    key = ":".join(["failures", str(job.pk), column, *narrowed.values()])
    counts: list[tuple[str, int]] | None = cache.get(key)
    if counts is None:
        found = (
            Item.objects.filter(job_id=job.pk, state="failed", **narrowed)
            .order_by()
            .values_list(column)
            .annotate(n=Count("id"))
            .order_by("-n", column)
        )
        merged: Counter[str] = Counter()
        for value, count in found:
            merged[value or ""] += count
        counts = merged.most_common()
        if sum(count for _, count in counts) > _CHEAP:
            cache.set(key, counts, _KEEP)
    return counts


def failures_by_category(
    job: Job, *, failed: int, shard: Shard | None = None
) -> list[CategoryCount]:
    """Most frequent first; `failed` is the sum of the shards, so no failure costs no query."""
    if not failed:
        return []
    return [
        CategoryCount(category, count, width, category_info(category).operator_retry)
        for category, count, width in _with_widths(_counted(job, "category", shard=shard))
    ]


def failures_by_code(job: Job, *, category: str, shard: Shard | None = None) -> list[CodeCount]:
    """The codes of one category, most frequent first."""
    counts = _counted(job, "code", shard=shard, category=category)
    return [CodeCount(code, count, width) for code, count, width in _with_widths(counts)]


@dataclass(frozen=True, slots=True)
class ItemPage:
    """`next_after` is the id to go on from, None at the end."""

    items: Sequence[Item]
    next_after: int | None


def failed_items(
    job: Job,
    *,
    category: str,
    codes: Sequence[str],
    code: str | None = None,
    shard: Shard | None = None,
    after: int = 0,
) -> ItemPage:
    """One page of one category, or of one of its codes.

    Within one code the index gives the order; over all `codes` the page is merged from their
    heads (of the first `MERGED`), so that nothing sorts a million rows.
    """
    if shard is not None:
        ids = _ids_of_shard(shard, category=category, code=code, after=after, most=PAGE_SIZE + 1)
        return _page(ids)
    wanted = [code] if code is not None else list(codes[:MERGED])
    values: dict[str, Any] = {
        "job": job.pk,
        "category": category,
        "codes": wanted,
        "no_code": "" in wanted,
        "after": after,
        "most": PAGE_SIZE + 1,
    }
    with connection.cursor() as cursor:
        cursor.execute(sql("failed_heads"), values)
        ids = [row[0] for row in cursor.fetchall()]
    return _page(ids)


def _ids_of_shard(
    shard: Shard, *, category: str = "", code: str | None = None, after: int = 0, most: int | None
) -> list[int]:
    found = run_query(
        "failed_of_shard",
        shard=shard.pk,
        category=category or None,
        code=code,
        after=after,
        most=most,
    )
    return [row["id"] for row in found]


def _page(ids: Sequence[int]) -> ItemPage:
    """The page that begins with these ids, of which one more than a page was looked for."""
    page = ids[:PAGE_SIZE]
    items = Item.objects.filter(pk__in=page).select_related("shard__account").order_by("id")
    return ItemPage(list(items), page[-1] if len(ids) > PAGE_SIZE else None)


def failed_for_export(
    job: Job, *, category: str = "", code: str | None = None, shard: Shard | None = None
) -> Iterator[Item]:
    """All failed items for a download, in pages by keyset: no long transaction, little memory."""
    if shard is not None:
        ids = _ids_of_shard(shard, category=category, code=code, most=None)
        for at in range(0, len(ids), _EXPORT_CHUNK):
            chosen = ids[at : at + _EXPORT_CHUNK]
            # a retry may have taken some up meanwhile
            yield from Item.objects.filter(pk__in=chosen, state="failed").order_by("id")
        return
    found = Item.objects.filter(job_id=job.pk, state="failed")
    if category:
        found = found.filter(category=category)
    if code is not None:
        found = found.filter(code=code) if code else found.filter(Q(code=None) | Q(code=""))
    # one kind at a time, so that the index gives the order
    for kind, number in list(found.order_by().values_list("category", "code").distinct()):
        same = found.filter(category=kind)
        same = same.filter(code__isnull=True) if number is None else same.filter(code=number)
        after = 0
        while chunk := list(same.filter(id__gt=after).order_by("id")[:_EXPORT_CHUNK]):
            yield from chunk
            if len(chunk) < _EXPORT_CHUNK:
                break
            after = chunk[-1].pk
