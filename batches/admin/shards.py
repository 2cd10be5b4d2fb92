"""分片: all shards of a job, and one shard with its items."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import pgettext
from django.views.decorators.http import require_safe

from batches.models import Job, Shard
from batches.selectors.items import STATES, shard_items
from batches.selectors.job_page import HAVING, HAVING_LABELS, shard_page, shard_row
from batches.selectors.progress import PART_LABELS
from batches.selectors.why import why_not_moving
from batches.services import jobs as services

from .shell import number, page
from .verbs import Offers, actor_of, job_crumbs, see_other, verb, version_of


@require_safe
def shard_list(request: HttpRequest, job_id: int) -> HttpResponse:
    job = get_object_or_404(Job, pk=job_id)
    having = request.GET.get("having", "")
    having = having if having in HAVING else ""
    found = shard_page(job, page=number(request.GET.get("page")) or 1, having=having)

    def address(number: int) -> str:
        kept: dict[str, Any] = {"having": having} if having else {}
        return f"?{urlencode(kept | {'page': number})}"

    return page(
        request,
        "console/shards.html",
        {
            "job": job,
            "offers": Offers(job, actor_of(request)),
            "shards": found.rows,
            "found": found.found,
            "having": having,
            "filters": [("", _("全部")), *((key, _(HAVING_LABELS[key])) for key in HAVING)],
            "page_number": found.page,
            "pages": found.pages,
            "earlier": address(found.page - 1) if found.page > 1 else "",
            "later": address(found.page + 1) if found.page < found.pages else "",
        },
        title=pgettext("plural", "分片"),
        crumbs=job_crumbs(job),
    )


@require_safe
def shard(request: HttpRequest, job_id: int, ordinal: int) -> HttpResponse:
    job = get_object_or_404(Job, pk=job_id)
    shown = get_object_or_404(Shard.objects.select_related("account"), job=job, ordinal=ordinal)
    part = request.GET.get("part", "")
    part = part if part in STATES else ""
    after = number(request.GET.get("after")) or 0
    found = shard_items(shown, part=part, after=after)
    kept = {"part": part} if part else {}
    return page(
        request,
        "console/shard.html",
        {
            "job": job,
            "shard": shard_row(job, shown),
            "why": why_not_moving(job, shown),
            "offers": Offers(job, actor_of(request)),
            "part": part,
            "parts": [("", _("全部")), *((key, _(label)) for key, label in PART_LABELS)],
            "items": found.items,
            "paged": after > 0,
            "first_page": f"?{urlencode(kept)}",
            "next_page": f"?{urlencode(kept | {'after': found.next_after})}"
            if found.next_after
            else "",
        },
        title=_("分片 #%(ordinal)s") % {"ordinal": ordinal},
        crumbs=[
            *job_crumbs(job),
            (reverse("admin:job_shards", args=[job.pk]), pgettext("plural", "分片")),
        ],
    )


@verb()
def pause(request: HttpRequest, job: Job, ordinal: int) -> HttpResponse:
    services.pause_shard(
        job_id=job.pk,
        ordinal=ordinal,
        actor=actor_of(request),
        reason=request.POST.get("reason", ""),
        expected_version=version_of(request),
    )
    return see_other(reverse("admin:job_shard", args=[job.pk, ordinal]))


@verb()
def resume(request: HttpRequest, job: Job, ordinal: int) -> HttpResponse:
    services.resume_shard(
        job_id=job.pk,
        ordinal=ordinal,
        actor=actor_of(request),
        expected_version=version_of(request),
    )
    return see_other(reverse("admin:job_shard", args=[job.pk, ordinal]))
