"""新建作业: action, parameters, file and limits, on one form."""

from __future__ import annotations

import re
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from batches.actions.registry import all_actions
from batches.domain.columns import ACCOUNT
from batches.domain.errors import InvalidInputError, NotAllowedError
from batches.domain.problems import Problem
from batches.domain.text import N_
from batches.models.jobs import BadRows
from batches.services.permissions import require
from batches.services.submissions import OPERATE, submit

from .shell import number, page
from .verbs import actor_of, forbidden, problem_texts, see_other

_STAGE_SEPARATORS = re.compile(r"[,，、;；\s]+")
_LIMITS = ("name", "budget", "stages", "rate", "bad_rows", "rerun_reason")


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
                "同样的文件和参数已经提交过，这就是那个作业。要再发一次，请在新建时填写「再次执行的原因」。"
            ),
        )
    return see_other(reverse("admin:job", args=[done.job.pk]))


def _submit(request: HttpRequest) -> Any:
    upload = request.FILES.get("file")
    if not isinstance(upload, UploadedFile):
        raise InvalidInputError(
            Problem("file_missing", N_("请选择要上传的文件（.csv 或 .xlsx）。"))
        )
    post = request.POST
    action = post.get("action", "")
    return submit(
        actor=actor_of(request),
        action=action,
        params=_params(request, action),
        upload_name=upload.name or "",
        chunks=upload.chunks(),
        name=post.get("name", ""),
        budget_limit=_whole(
            post.get("budget", ""), "budget_not_number", N_("预算请填正整数，或留空表示不限。")
        ),
        stages=_stages(post.get("stages", "")),
        rate_limit_per_min=_whole(
            post.get("rate", ""), "rate_not_number", N_("作业速率上限请填正整数，或留空表示不限。")
        ),
        bad_rows=post.get("bad_rows", BadRows.REFUSE),
        rerun_reason=post.get("rerun_reason", ""),
    )


def _params(request: HttpRequest, action: str) -> dict[str, object]:
    """The chosen action's fields; those of the others are not looked at."""
    names = {spec.name for known in all_actions() if known.name == action for spec in known.params}
    found = {name: request.POST.get(f"{action}.{name}", "") for name in names}
    # browsers send CRLF; a message has one character for a line's end
    return {name: value.replace("\r\n", "\n") for name, value in found.items()}


def _whole(text: str, code: str, complaint: str) -> int | None:
    text = text.strip().replace(",", "")
    if not text:
        return None
    value = number(text)
    if value is None:
        raise InvalidInputError(Problem(code, complaint))
    return value


def _stages(text: str) -> list[int]:
    words = [word for word in _STAGE_SEPARATORS.split(text.strip()) if word]
    stages = [number(word) for word in words]
    if None in stages:
        raise InvalidInputError(
            Problem("stages_not_numbers", N_("放量检查点请填从小到大的条数，例如 50,500。"))
        )
    return [stage for stage in stages if stage is not None]


def _form(request: HttpRequest, texts: list[str] | None = None) -> HttpResponse:
    actions = all_actions()
    chosen = request.POST.get("action") or request.GET.get("action") or actions[0].name
    return page(
        request,
        "console/job_new.html",
        {
            "actions": [_action_fields(request, action) for action in actions],
            "chosen": chosen,
            "texts": texts or [],
            "typed": {name: request.POST.get(name, "") for name in _LIMITS},
            "bad_rows_choices": BadRows.choices,
            "max_bytes": settings.UPLOAD_MAX_BYTES,
            "max_mb": settings.UPLOAD_MAX_BYTES // (1024 * 1024),
        },
        title=_("新建作业"),
        crumbs=[(reverse("admin:jobs"), _("作业"))],
        status=422 if texts else 200,
    )


def _action_fields(request: HttpRequest, action: Any) -> dict[str, Any]:
    return {
        "name": action.name,
        "label": action.label,
        "description": action.description,
        "columns": [
            {
                "label": spec.label,
                "required": spec.required,
                "aliases": _("、").join(spec.aliases[:6]),
                "is_account": spec.key == ACCOUNT,
            }
            for spec in action.columns
        ],
        "params": [
            {
                "spec": spec,
                "field": f"{action.name}.{spec.name}",
                "value": request.POST.get(f"{action.name}.{spec.name}", spec.default),
            }
            for spec in action.params
        ],
    }
