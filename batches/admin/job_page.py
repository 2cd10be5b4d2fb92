"""作业页: one job, top to bottom; its live part is polled."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from batches.domain.states import JobStatus
from batches.models import Job
from batches.selectors.job_page import live_job, live_mark, progress_for

from .job_report import report_context
from .shell import page
from .verbs import Offers, actor_of, job_crumbs

#: states whose page shows what became of the file instead of figures
IMPORTING = frozenset({JobStatus.PREPARING, JobStatus.AWAITING, JobStatus.REJECTED})
#: nothing happens here any more: the fragment comes without its trigger
AT_END = frozenset({JobStatus.COMPLETED, JobStatus.CANCELLED, JobStatus.REJECTED})


def _job(job_id: int) -> Job:
    return get_object_or_404(Job.objects.select_related("created_by", "upload"), pk=job_id)


def _context(request: HttpRequest, job: Job) -> dict[str, Any]:
    context: dict[str, Any] = {
        "job": job,
        "offers": Offers(job, actor_of(request)),
        "importing": job.status in IMPORTING,
        "at_end": job.status in AT_END,
    }
    progress = progress_for(job)
    if context["importing"]:
        context |= {"mark": live_mark(job, progress)} | report_context(job, progress)
    else:
        context["live"] = live_job(job, progress=progress)
        context["mark"] = context["live"].mark
    return context


@require_safe
def job_page(request: HttpRequest, job_id: int) -> HttpResponse:
    job = _job(job_id)
    context = _context(request, job)
    return page(request, "console/job.html", context, title=job.name, crumbs=job_crumbs(job)[:1])


@require_safe
def job_live(request: HttpRequest, job_id: int) -> HttpResponse:
    """The live part, or 204 where the page already shows it.

    `v` is the mark the page has, `n` the job's version it has: only where that changed do the
    heading and its buttons come too. A file that is done being read reloads the whole page.
    """
    job = _job(job_id)
    if request.GET.get("v") == live_mark(job, progress_for(job)):
        return HttpResponse(status=204)
    known = request.GET.get("s", "")
    if known != job.status and (known in IMPORTING or job.status in IMPORTING):
        return HttpResponse(status=204, headers={"HX-Refresh": "true"})
    context = _context(request, job)
    if context["importing"]:
        return render(request, "console/_job_import.html", context)
    context["with_head"] = request.GET.get("n") != str(job.version)
    return render(request, "console/_job_live.html", context)
