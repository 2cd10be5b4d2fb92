"""From a POST to a service and back: versions, refusals as pages, where to go on."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import pgettext
from django.views.decorators.http import require_http_methods

from batches.domain.errors import (
    InvalidInputError,
    NotAllowedError,
    StaleVersionError,
    WrongStateError,
)
from batches.domain.problems import Problem
from batches.domain.states import JobStatus
from batches.domain.verbs import VERBS, Verb
from batches.models import Job
from batches.selectors.job_page import stopped_by_system
from batches.services.permissions import may, needs_second_person

from .shell import number, page

View = Callable[..., HttpResponse]
Screen = Callable[..., HttpResponseBase]


def actor_of(request: HttpRequest) -> User:
    """The signed-in person; the site lets nobody else through."""
    assert isinstance(request.user, User)
    return request.user


def may_view(user: User) -> bool:
    """Who may look at jobs: those with that permission, and those who may act on them."""
    needed = {"batches.view_job", *(info.permission for info in VERBS.values())}
    return any(user.has_perm(permission) for permission in needed)


def viewer_only(view: Screen) -> Screen:
    """The site lets staff in; messages and customers are for those with a role."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not may_view(actor_of(request)):
            return forbidden(request, _("您还没有查看作业的权限。请联系管理员分配角色。"))
        return view(request, *args, **kwargs)

    return guarded


class _NoVersionError(Exception):
    """A form of a job that does not say which version its page showed."""


def version_of(request: HttpRequest) -> int:
    """The version of the job that the page showed; every form of a job sends it.

    Without one nothing would be noticed of what others did meanwhile, so `verb` refuses it.
    """
    version = number(request.POST.get("version"))
    if version is None:
        raise _NoVersionError
    return version


def problem_texts(error: InvalidInputError) -> list[str]:
    """What is wrong, each in the reader's language."""
    return [
        problem.translated(_) if isinstance(problem, Problem) else str(problem)
        for problem in error.problems
    ]


def verb(*methods: str) -> Callable[[View], View]:
    """A view that does something to a job: refusals become pages that say what to do.

    POST alone changes anything; with "GET" the view also shows what it would do.
    """

    def decorate(view: View) -> View:
        @wraps(view)
        def guarded(request: HttpRequest, job_id: int, **kwargs: Any) -> HttpResponse:
            job = get_object_or_404(Job.objects.select_related("created_by"), pk=job_id)
            try:
                return view(request, job, **kwargs)
            except NotAllowedError as error:
                return forbidden(request, str(error), job)
            except WrongStateError as error:
                return conflict(request, job_id, error)
            except InvalidInputError as error:
                return unusable(request, problem_texts(error), job)
            except _NoVersionError:
                text = _("请求没有带上作业的版本，没有执行。请刷新作业页后再操作。")
                return unusable(request, [text], job, status=400)

        return require_http_methods([*methods, "POST"])(guarded)

    return decorate


def conflict(request: HttpRequest, job_id: int, error: WrongStateError) -> HttpResponse:
    """409: what was wanted does not fit; the job as it is now."""
    job = get_object_or_404(Job.objects.select_related("created_by"), pk=job_id)
    return page(
        request,
        "console/conflict.html",
        {"text": str(error), "job": job},
        title=_conflict_title(error),
        crumbs=job_crumbs(job),
        status=409,
    )


def _conflict_title(error: WrongStateError) -> str:
    if not isinstance(error, StaleVersionError):
        return _("现在不能这样操作")
    return _("页面已过期") if error.own else _("状态已被他人更改")


def forbidden(request: HttpRequest, text: str, job: Job | None = None) -> HttpResponse:
    """403 with the missing permission by name."""
    return page(
        request,
        "console/refused.html",
        {"texts": [text], "job": job},
        title=_("没有权限"),
        crumbs=job_crumbs(job) if job else (),
        status=403,
    )


def unusable(
    request: HttpRequest, texts: list[str], job: Job | None = None, status: int = 422
) -> HttpResponse:
    """422: what was filled in cannot be used."""
    return page(
        request,
        "console/refused.html",
        {"texts": texts, "job": job},
        title=_("没有执行"),
        crumbs=job_crumbs(job) if job else (),
        status=status,
    )


def job_crumbs(job: Job) -> list[tuple[str, str]]:
    return [
        (reverse("admin:jobs"), pgettext("plural", "作业")),
        (reverse("admin:job", args=[job.pk]), job.name),
    ]


def back_to(request: HttpRequest, job: Job, text: str) -> HttpResponse:
    """Done: say so, and show the job (or the list, if the button was there)."""
    messages.success(request, text)
    if request.POST.get("back") == "jobs":
        return see_other(reverse("admin:jobs"))
    return see_other(reverse("admin:job", args=[job.pk]))


def see_other(url: str) -> HttpResponseRedirect:
    """303: the browser goes on with GET, so that reloading repeats nothing."""
    response = HttpResponseRedirect(url)
    response.status_code = 303
    return response


class Offers:
    """Which verbs a page offers for a job to a person; for templates: `{% if offers.pause %}`."""

    def __init__(self, job: Job, user: User) -> None:
        self._job = job
        self._status = JobStatus(job.status)
        self._user = user

    @property
    def second_person(self) -> bool:
        """The person made this job, and it is so large that somebody else has to confirm it."""
        return needs_second_person(job=self._job, actor=self._user)

    @cached_property
    def resume_stopped(self) -> bool:
        """The job runs on, and some of its shards stand until somebody takes them up."""
        return (
            self._status is JobStatus.RUNNING
            and may(actor=self._user, verb=Verb.RESUME)
            and stopped_by_system(self._job)
        )

    def __getitem__(self, name: str) -> bool:
        found = Verb(name)
        return self._status in VERBS[found].sources and may(actor=self._user, verb=found)
