"""Verbs of one click: confirm, pause, resume, and the rate."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.formats import date_format, number_format
from django.utils.translation import gettext as _

from batches.domain.errors import InvalidInputError
from batches.domain.problems import Problem
from batches.domain.states import JobStatus
from batches.domain.text import N_
from batches.models import Job
from batches.services import jobs as services

from .shell import number
from .verbs import actor_of, back_to, verb, version_of


@verb()
def confirm(request: HttpRequest, job: Job) -> HttpResponse:
    done = services.confirm_job(
        job_id=job.pk, actor=actor_of(request), expected_version=version_of(request)
    )
    count = number_format(done.total)
    if done.start_at is not None and done.start_at > timezone.now():
        text = _("已确认，共 %(count)s 条，%(when)s 开始发送。") % {
            "count": count,
            "when": date_format(timezone.localtime(done.start_at), "Y-m-d H:i"),
        }
    else:
        text = _("已启动，共 %(count)s 条。") % {"count": count}
    return back_to(request, done, text)


@verb()
def pause(request: HttpRequest, job: Job) -> HttpResponse:
    done = services.pause_job(
        job_id=job.pk,
        actor=actor_of(request),
        reason=request.POST.get("reason", ""),
        expected_version=version_of(request),
    )
    if done.status == JobStatus.PAUSING:
        text = _("正在暂停「%(name)s」：不再取新条目，已提交的条目继续等结果。")
    else:
        text = _("已暂停「%(name)s」。可随时继续，不会重发已提交的条目。")
    return back_to(request, done, text % {"name": done.name})


@verb()
def resume(request: HttpRequest, job: Job) -> HttpResponse:
    done = services.resume_job(
        job_id=job.pk, actor=actor_of(request), expected_version=version_of(request)
    )
    return back_to(request, done, _("「%(name)s」已继续。") % {"name": done.name})


@verb()
def rate(request: HttpRequest, job: Job) -> HttpResponse:
    """An empty field lifts the ceiling."""
    text = request.POST.get("per_min", "").strip()
    per_min = number(text.replace(",", ""))
    if text and per_min is None:
        raise InvalidInputError(
            Problem("rate_not_number", N_("速率上限请填每分钟条数（正整数），或留空表示不限。"))
        )
    done = services.set_rate(
        job_id=job.pk,
        actor=actor_of(request),
        per_min=per_min,
        expected_version=version_of(request),
    )
    if done.rate_limit_per_min is None:
        return back_to(request, done, _("已取消作业的速率上限；账号自身的速率仍然有效。"))
    limit = number_format(done.rate_limit_per_min)
    return back_to(request, done, _("速率上限已改为 %(limit)s 条/分。") % {"limit": limit})
