"""新建作业: action, parameters, file and limits, on one form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import get_language, pgettext
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from batches.actions.registry import all_actions
from batches.domain.breaker import Thresholds
from batches.domain.columns import ACCOUNT
from batches.domain.errors import InvalidInputError, NotAllowedError
from batches.domain.problems import Problem
from batches.domain.text import N_
from batches.domain.verbs import OPERATE
from batches.models import Job
from batches.models.jobs import BadRows
from batches.services.permissions import require
from batches.services.submissions import Submission, submit

from . import limit_fields as fields
from .job_limits import CLOSES, OPENS, PRIORITY, START, breaker_fields
from .job_template import Template, template_of
from .shell import number, page
from .verbs import actor_of, forbidden, problem_texts, see_other

_COUNTS = {
    "priority": PRIORITY,
    "max_attempts": N_("最多尝试次数"),
    "call_size": N_("每次请求的目标数"),
}
_MORE = (
    "start_at",
    "window_from",
    "window_to",
    "breaker_streak",
    "breaker_ratio",
    "breaker_window",
    "breaker_min_sample",
    "breaker_shard_share",
    *_COUNTS,
)
_TYPED = ("name", "budget", "stages", "rate", "bad_rows", "rerun_reason", *_MORE)


@require_http_methods(["GET", "POST"])
def job_new(request: HttpRequest) -> HttpResponse:
    """GET shows the form. POST makes the job, or leads to the one that this very form made."""
    try:
        require(actor=actor_of(request), permission=OPERATE)
    except NotAllowedError as error:
        return forbidden(request, str(error))
    if request.method == "GET":
        return _form(request)
    try:
        done = _submit(request)
    except InvalidInputError as error:
        return _form(request, problem_texts(error))
    if not done.created:
        messages.warning(
            request,
            _(
                "同样的文件和内容已经提交过，这就是那个作业，限制也还是它的。要改限制，请在这里调整；要再发一次，请在新建时填写「再次执行的原因」。"
            ),
        )
    return see_other(reverse("admin:job", args=[done.job.pk]))


def _submit(request: HttpRequest) -> Submission:
    upload = request.FILES.get("file")
    if not isinstance(upload, UploadedFile):
        raise InvalidInputError(
            Problem("file_missing", N_("请选择要上传的文件（.csv 或 .xlsx）。"))
        )
    post = request.POST
    action = post.get("action", "")
    # what is left empty takes the service's own default
    counts: dict[str, Any] = {
        name: value
        for name, label in _COUNTS.items()
        if (value := fields.whole(post, name, label)) is not None
    }
    return submit(
        actor=actor_of(request),
        action=action,
        params=_params(request, action),
        upload_name=upload.name or "",
        chunks=upload.chunks(),
        name=post.get("name", ""),
        budget_limit=fields.positive(post, "budget", N_("预算")),
        stages=fields.stages(post),
        rate_limit_per_min=fields.positive(post, "rate", N_("作业速率上限")),
        bad_rows=post.get("bad_rows", BadRows.REFUSE),
        start_at=fields.moment(post, "start_at", START),
        window_from=fields.clock(post, "window_from", OPENS),
        window_to=fields.clock(post, "window_to", CLOSES),
        breaker=replace(Thresholds(), **breaker_fields(post)),
        rerun_reason=post.get("rerun_reason", ""),
        **counts,
    )


def _params(request: HttpRequest, action: str) -> dict[str, object]:
    """The chosen action's fields; those of the others are not looked at."""
    names = {spec.name for known in all_actions() if known.name == action for spec in known.params}
    found = {name: request.POST.get(f"{action}.{name}", "") for name in names}
    # browsers send CRLF; a message has one character for a line's end
    return {name: value.replace("\r\n", "\n") for name, value in found.items()}


def _form(request: HttpRequest, texts: list[str] | None = None) -> HttpResponse:
    actions = all_actions()
    template = _template(request)
    if request.method == "POST":
        given: Mapping[str, str] = request.POST
    else:
        given = template.values if template else {"action": request.GET.get("action", "")}
    known = {action.name for action in actions}
    chosen = given.get("action", "")
    return page(
        request,
        "console/job_new.html",
        {
            "actions": [_action_fields(given, action) for action in actions],
            "chosen": chosen if chosen in known else actions[0].name,
            "texts": texts or [],
            "template": template,
            # a form that comes filled is not replaced by a kept draft
            "filled": "posted" if request.method == "POST" else "template" if template else "",
            "typed": {name: given.get(name, "") for name in _TYPED},
            "bad_rows_choices": BadRows.choices,
            "more": any(given.get(name) for name in _MORE),
            "standard": Thresholds(),
            "max_bytes": settings.UPLOAD_MAX_BYTES,
            "max_mb": settings.UPLOAD_MAX_BYTES // (1024 * 1024),
        },
        title=_("新建作业"),
        crumbs=[(reverse("admin:jobs"), pgettext("plural", "作业"))],
        status=422 if texts else 200,
    )


def _template(request: HttpRequest) -> Template | None:
    """The job that the address names; one that is not there is said, and fills in nothing."""
    if "from" not in request.GET:
        return None
    asked = number(request.GET["from"])
    job = Job.objects.select_related("upload").filter(pk=asked).first() if asked else None
    if job is None:
        messages.warning(request, _("要作为模板的作业不存在，表单没有预填。"))
        return None
    return template_of(job)


def _familiar(aliases: Sequence[str]) -> list[str]:
    """The first of a column's names in the script of the reader's language."""
    latin = (get_language() or "").startswith("en")
    return [alias for alias in aliases if alias.isascii() == latin][:6]


def _action_fields(given: Mapping[str, str], action: Any) -> dict[str, Any]:
    return {
        "name": action.name,
        "label": action.label,
        "description": action.description,
        "columns": [
            {
                "label": spec.label,
                "required": spec.required,
                "aliases": _("、").join(_familiar(spec.aliases)),
                "is_account": spec.key == ACCOUNT,
            }
            for spec in action.columns
        ],
        "params": [
            {
                "spec": spec,
                "field": f"{action.name}.{spec.name}",
                "value": given.get(f"{action.name}.{spec.name}", spec.default),
            }
            for spec in action.params
        ],
    }
