"""失败下钻: category → code → items."""

from __future__ import annotations

from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from batches.domain.categories import CATEGORIES, category_info
from batches.models import Job
from batches.selectors.failures import failed_items, failures_by_category, failures_by_code
from batches.selectors.job_page import progress_for

from .shell import number, page
from .verbs import Offers, actor_of, job_crumbs


@require_safe
def categories(request: HttpRequest, job_id: int) -> HttpResponse:
    job = get_object_or_404(Job, pk=job_id)
    progress = progress_for(job)
    return page(
        request,
        "console/failures.html",
        {
            "job": job,
            "progress": progress,
            "categories": failures_by_category(job, failed=progress.failed),
            "offers": Offers(job, actor_of(request)),
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
    code = request.GET.get("code")
    if code is not None:
        code = code.replace("\0", "")
    after = number(request.GET.get("after")) or 0
    codes = failures_by_code(job, category=category)
    found = failed_items(
        job, category=category, codes=[row.code for row in codes], code=code, after=after
    )
    info = category_info(category)
    kept = {} if code is None else {"code": code}
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
            "offers": Offers(job, actor_of(request)),
            "paged": after > 0,
            "first_page": f"?{urlencode(kept)}",
            "next_page": f"?{urlencode(kept | {'after': found.next_after})}"
            if found.next_after
            else "",
            "query": urlencode({"category": category} | kept),
        },
        title=_(info.label),
        crumbs=[
            *job_crumbs(job),
            (reverse("admin:job_failures", args=[job.pk]), _("失败下钻")),
        ],
    )
