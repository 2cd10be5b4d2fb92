"""条目: one target, what was sent for it, and what people decided."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from batches.models import Item, Job
from batches.selectors.item_history import item_history
from batches.selectors.items import PAGE_SIZE, calls_of

from .shell import page
from .verbs import Offers, actor_of, job_crumbs


@require_safe
def item(request: HttpRequest, job_id: int, item_id: int) -> HttpResponse:
    job = get_object_or_404(Job, pk=job_id)
    shown = get_object_or_404(
        Item.objects.select_related("shard__account", "job"), pk=item_id, job_id=job.pk
    )
    calls = calls_of(shown)
    cells = [*shown.fields, *[""] * len(job.columns)]
    shard = shown.shard
    return page(
        request,
        "console/item.html",
        {
            "job": job,
            "item": shown,
            "cells": list(zip(job.columns, cells, strict=False)),
            "calls": calls,
            "calls_cut": len(calls) >= PAGE_SIZE,
            "events": item_history(shown, calls),
            "offers": Offers(job, actor_of(request)),
        },
        title=_("第 %(row)s 行 · %(target)s") % {"row": shown.row_no, "target": shown.target},
        crumbs=[
            *job_crumbs(job),
            (
                reverse("admin:job_shard", args=[job.pk, shard.ordinal]),
                _("分片 #%(ordinal)s") % {"ordinal": shard.ordinal},
            ),
        ],
    )
