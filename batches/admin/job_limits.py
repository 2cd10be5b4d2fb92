"""调整限制: start, hours, breaker and priority of a job, each with its own button."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from batches.domain.errors import InvalidInputError
from batches.domain.problems import Problem
from batches.domain.text import N_
from batches.models import Job
from batches.services import jobs as services
from batches.services.limits import thresholds_of

from . import limit_fields as fields
from .shell import page
from .verbs import Offers, actor_of, back_to, job_crumbs, problem_texts, verb, version_of

START, OPENS, CLOSES = N_("定时开始"), N_("允许时段从"), N_("允许时段到")
PRIORITY = N_("优先级")
STREAK, RATIO = N_("分片连续失败上限"), N_("作业失败率上限")
WINDOW, SAMPLE = N_("失败率统计条数"), N_("失败率最少样本")
SHARE = N_("熔断分片占比上限")


def breaker_fields(form: fields.Form) -> dict[str, Any]:
    """The thresholds that were filled in, by the names of `Thresholds`."""
    typed = {
        "streak": fields.whole(form, "breaker_streak", STREAK),
        "ratio": fields.share(form, "breaker_ratio", RATIO),
        "window": fields.whole(form, "breaker_window", WINDOW),
        "min_sample": fields.whole(form, "breaker_min_sample", SAMPLE),
        "shard_share": fields.share(form, "breaker_shard_share", SHARE),
    }
    return {name: value for name, value in typed.items() if value is not None}


@verb("GET")
def limits(request: HttpRequest, job: Job) -> HttpResponse:
    """GET shows the forms; POST applies the one whose button was pressed."""
    if request.method == "GET":
        return _forms(request, job)
    try:
        done = _apply(request, job)
    except InvalidInputError as error:
        return _forms(request, job, problem_texts(error))
    return back_to(request, done, _("限制已更新，2 秒内生效。"))


def _apply(request: HttpRequest, job: Job) -> Job:
    form = request.POST
    common: dict[str, Any] = {
        "job_id": job.pk,
        "actor": actor_of(request),
        "reason": form.get("reason", ""),
        "expected_version": version_of(request),
    }
    match form.get("set"):
        case "hours":
            return services.set_hours(
                window_from=fields.clock(form, "window_from", OPENS),
                window_to=fields.clock(form, "window_to", CLOSES),
                **common,
            )
        case "start":
            return services.set_start(start_at=fields.moment(form, "start_at", START), **common)
        case "breaker":
            return services.set_breaker(**breaker_fields(form), **common)
        case "priority":
            priority = fields.whole(form, "priority", PRIORITY)
            if priority is None:
                raise InvalidInputError(Problem("priority_missing", N_("请填写优先级。")))
            return services.set_priority(priority=priority, **common)
        case _:
            raise InvalidInputError(Problem("limit_unknown", N_("没有这样的限制。")))


def _forms(request: HttpRequest, job: Job, texts: list[str] | None = None) -> HttpResponse:
    return page(
        request,
        "console/limits.html",
        {
            "job": job,
            "offers": Offers(job, actor_of(request)),
            "texts": texts or [],
            "current": thresholds_of(job),
        },
        title=_("调整限制"),
        crumbs=job_crumbs(job),
        status=422 if texts else 200,
    )
