"""Verbs that ask first: cancel, terminate, confirm a stage, raise the budget.

GET shows what would happen, inside a dialog for htmx or as a page of its own; POST does it.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.formats import number_format
from django.utils.translation import gettext as _

from batches.domain.errors import InvalidInputError
from batches.domain.states import JobStatus
from batches.domain.text import N_
from batches.domain.verbs import VERBS, Verb
from batches.models import Job
from batches.selectors.job_page import progress_for
from batches.selectors.stage import stage_report
from batches.services import jobs as services
from batches.services.acting import refusal
from batches.services.permissions import may, require

from . import limit_fields as fields
from .shell import is_fragment, page
from .verbs import actor_of, back_to, job_crumbs, problem_texts, verb, version_of


def check(request: HttpRequest, job: Job, wanted: Verb) -> None:
    """No question whose answer would be refused. Raises NotAllowedError, WrongStateError."""
    require(actor=actor_of(request), permission=VERBS[wanted].permission)
    if JobStatus(job.status) not in VERBS[wanted].sources:
        raise refusal(job, wanted)


def ask(
    request: HttpRequest,
    job: Job,
    name: str,
    *,
    title: str,
    error: InvalidInputError | None = None,
    moving: bool = False,
    **more: Any,
) -> HttpResponse:
    """The question, with the numbers of this moment; after a faulty answer, what was wrong.

    `moving`: the numbers are asked for again while the dialog is open.
    """
    context: dict[str, Any] = {
        "job": job,
        "progress": progress_for(job),
        "dialog": f"console/dialogs/{name}.html",
        "facts": f"console/dialogs/{name}_facts.html",
        "dialog_title": title,
        "texts": problem_texts(error) if error else [],
        "reason": request.POST.get("reason", ""),
        "moving": moving and is_fragment(request),
        **more,
    }
    if is_fragment(request) and request.GET.get("part") == "facts":
        return render(request, "console/dialogs/_facts.html", context)
    if is_fragment(request):
        return render(request, "console/dialogs/_dialog.html", context)
    return page(
        request,
        "console/dialogs/page.html",
        context,
        title=title,
        crumbs=job_crumbs(job),
        status=422 if error else 200,
    )


@verb("GET")
def cancel(request: HttpRequest, job: Job) -> HttpResponse:
    title = _("取消作业「%(name)s」？") % {"name": job.name}
    if request.method == "GET":
        check(request, job, Verb.CANCEL)
        return ask(request, job, "cancel", title=title, moving=True)
    try:
        done = services.cancel_job(
            job_id=job.pk,
            actor=actor_of(request),
            reason=request.POST.get("reason", ""),
            expected_version=version_of(request),
        )
    except InvalidInputError as error:
        return ask(request, job, "cancel", title=title, error=error)
    return back_to(request, done, _("「%(name)s」已取消，不再取新条目。") % {"name": done.name})


@verb("GET")
def terminate(request: HttpRequest, job: Job) -> HttpResponse:
    title = _("强制终止作业「%(name)s」？") % {"name": job.name}
    if request.method == "GET":
        check(request, job, Verb.TERMINATE)
        return ask(request, job, "terminate", title=title, moving=True)
    try:
        done = services.terminate_job(
            job_id=job.pk,
            actor=actor_of(request),
            reason=request.POST.get("reason", ""),
            confirm_name=request.POST.get("confirm_name", ""),
            expected_version=version_of(request),
        )
    except InvalidInputError as error:
        return ask(request, job, "terminate", title=title, error=error)
    return back_to(request, done, _("正在终止「%(name)s」。") % {"name": done.name})


@verb("GET")
def stage(request: HttpRequest, job: Job) -> HttpResponse:
    title = _("确认放量并继续「%(name)s」？") % {"name": job.name}
    if request.method == "GET":
        check(request, job, Verb.CONFIRM_STAGE)
        return ask(request, job, "stage", title=title, stage=stage_report(job))
    done = services.confirm_stage(
        job_id=job.pk,
        actor=actor_of(request),
        reason=request.POST.get("reason", ""),
        expected_version=version_of(request),
    )
    return back_to(request, done, _("已确认放量，「%(name)s」继续发送。") % {"name": done.name})


@verb("GET")
def budget(request: HttpRequest, job: Job) -> HttpResponse:
    title = _("提高「%(name)s」的预算") % {"name": job.name}
    may_resume = may(actor=actor_of(request), verb=Verb.RESUME)
    typed = request.POST.get("to", "")
    if request.method == "GET":
        check(request, job, Verb.RAISE_BUDGET)
        return ask(request, job, "budget", title=title, may_resume=may_resume, to="")
    try:
        done = services.raise_budget(
            job_id=job.pk,
            actor=actor_of(request),
            to=fields.whole(request.POST, "to", N_("预算")) or 0,
            reason=request.POST.get("reason", ""),
            resume=request.POST.get("resume") == "1",
            expected_version=version_of(request),
        )
    except InvalidInputError as error:
        return ask(
            request, job, "budget", title=title, error=error, may_resume=may_resume, to=typed
        )
    limit = number_format(done.budget_limit or 0)
    return back_to(request, done, _("预算已提高到 %(limit)s 条。") % {"limit": limit})
