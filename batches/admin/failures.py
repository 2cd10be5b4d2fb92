"""失败下钻: category → code → items, of a job or of one of its shards."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from batches.domain.categories import CATEGORIES, category_info
from batches.models import Job, Shard
from batches.selectors.failures import (
    MERGED,
    SHARDS_LISTED,
    failed_items,
    failures_by_category,
    failures_by_code,
    shards_with_failures,
)
from batches.selectors.job_page import progress_for

from .shell import number, page
from .verbs import Offers, actor_of, job_crumbs


def chosen_shard(request: HttpRequest, job: Job) -> Shard | None:
    """The shard (`shard` is its ordinal) that a list of failures is narrowed to. Raises Http404."""
    text = request.GET.get("shard", "")
    if not text:
        return None
    return get_object_or_404(
        Shard.objects.select_related("account"), job=job, ordinal=number(text) or 0
    )


def chosen_code(request: HttpRequest) -> str | None:
    """One code; '' stands for items without one, None for all of them."""
    code = (request.POST if request.method == "POST" else request.GET).get("code")
    return None if code is None else code.replace("\0", "")


def _narrowing(job: Job, shard: Shard | None) -> dict[str, Any]:
    """What the choice of a shard needs."""
    listed = shards_with_failures(job, chosen=shard)
    return {"shard": shard, "shards": listed, "more_shards": len(listed) >= SHARDS_LISTED}


@require_safe
def categories(request: HttpRequest, job_id: int) -> HttpResponse:
    job = get_object_or_404(Job, pk=job_id)
    shard = chosen_shard(request, job)
    failed = progress_for(job).failed if shard is None else shard.failed
    return page(
        request,
        "console/failures.html",
        {
            "job": job,
            "failed": failed,
            "categories": failures_by_category(job, failed=failed, shard=shard),
            "offers": Offers(job, actor_of(request)),
            "query": urlencode(_kept(shard)),
            **_narrowing(job, shard),
        },
        title=_("失败下钻"),
        crumbs=job_crumbs(job),
    )


@require_safe
def category(request: HttpRequest, job_id: int, category: str) -> HttpResponse:
    """The codes of one category, and its items (of one code with `code`), fifty a page."""
    job = get_object_or_404(Job, pk=job_id)
    if category not in CATEGORIES:
        raise Http404
    shard, code = chosen_shard(request, job), chosen_code(request)
    after = number(request.GET.get("after")) or 0
    codes = failures_by_code(job, category=category, shard=shard)
    found = failed_items(
        job,
        category=category,
        codes=[row.code for row in codes],
        code=code,
        shard=shard,
        after=after,
    )
    info = category_info(category)
    everywhere = _kept(shard)
    kept = everywhere if code is None else everywhere | {"code": code}
    return page(
        request,
        "console/category.html",
        {
            "job": job,
            "category": category,
            "info": info,
            "code": code,
            "codes": codes,
            "count": sum(row.count for row in codes),
            "items": found.items,
            "merged": MERGED if shard is None and code is None and len(codes) > MERGED else None,
            "offers": Offers(job, actor_of(request)),
            "paged": after > 0,
            "first_page": f"?{urlencode(kept)}",
            "next_page": f"?{urlencode(kept | {'after': found.next_after})}"
            if found.next_after
            else "",
            "query": urlencode({"category": category} | kept),
            "all_codes": f"?{urlencode(everywhere)}",
            "a_code": f"?{urlencode(everywhere | {'code': ''})}",
            **_narrowing(job, shard),
        },
        title=_(info.label),
        crumbs=[
            *job_crumbs(job),
            (
                f"{reverse('admin:job_failures', args=[job.pk])}?{urlencode(everywhere)}".rstrip(
                    "?"
                ),
                _("失败下钻"),
            ),
        ],
    )


def _kept(shard: Shard | None) -> dict[str, Any]:
    return {} if shard is None else {"shard": shard.ordinal}
