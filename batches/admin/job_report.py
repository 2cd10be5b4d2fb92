"""作业页 before the start: how the file was read, what is wrong, and the preview to confirm."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from batches.actions.base import Action
from batches.actions.registry import get_action
from batches.domain.errors import InvalidInputError
from batches.domain.text import N_
from batches.intake.decoding import ENCODINGS, WorkbookKind
from batches.intake.report import example_of, problem_from_json, reason_from_json
from batches.models import Job
from batches.models.jobs import BadRows
from batches.selectors.job_page import estimate
from batches.selectors.progress import Progress
from batches.selectors.rejections import first_rejections
from batches.services.submissions import reread as reread_job

from .shell import number
from .verbs import actor_of, back_to, verb, version_of

ACCOUNTS_SHOWN = 20
_DELIMITERS = {",": N_("逗号"), ";": N_("分号"), "\t": N_("制表符"), "|": N_("竖线")}


def report_context(job: Job, progress: Progress) -> dict[str, Any]:
    """What the report and the preview show; `job.intake` holds nearly all of it."""
    report = job.intake or {}
    try:
        action: Action | None = get_action(job.action)
    except InvalidInputError:
        action = None
    return {
        "report": report,
        "progress": progress,
        "is_workbook": report.get("encoding") == WorkbookKind().encoding,
        "delimiter": _(_DELIMITERS.get(report.get("delimiter") or "", "")) or "—",
        "problems": [problem_from_json(found) for found in report.get("problems") or []],
        "warnings": [problem_from_json(found) for found in report.get("warnings") or []],
        "reasons": [
            (reason_from_json(reason), reason, example_of(reason))
            for reason in report.get("by_reason") or []
        ],
        "rejections": first_rejections(job) if job.rejected_rows else [],
        "columns_wanted": _wanted(job, action),
        "encodings": ENCODINGS,
        "accounts": (report.get("accounts") or [])[:ACCOUNTS_SHOWN],
        "estimate": estimate(job, progress) if job.status == "awaiting" else None,
        "beyond_budget": max(0, job.total - job.budget_limit) if job.budget_limit else 0,
        "bad_rows_choices": BadRows.choices,
        "param_lines": _params(job, action),
    }


def _wanted(job: Job, action: Action | None) -> list[dict[str, Any]]:
    """Each column that the action reads, and which of the file's it is taken from."""
    if action is None:
        return []
    return [
        {
            "key": spec.key,
            "label": spec.label,
            "required": spec.required,
            "index": job.mapping.get(spec.key),
            "header": _header(job, job.mapping.get(spec.key)),
        }
        for spec in action.columns
    ]


def _header(job: Job, index: int | None) -> str:
    return job.columns[index] if index is not None and index < len(job.columns) else ""


def _params(job: Job, action: Action | None) -> list[tuple[str, str]]:
    if action is None:
        return [(name, str(value)) for name, value in job.params.items()]
    lines = []
    for spec in action.params:
        value = str(job.params.get(spec.name, spec.default))
        lines.append((spec.label, _(dict(spec.choices).get(value, value)) if value else "—"))
    return lines


@verb()
def reread(request: HttpRequest, job: Job) -> HttpResponse:
    """Read the same file again with the encoding and columns that the person chose."""
    post = request.POST
    mapping = {
        name.removeprefix("column-"): index
        for name in post
        if name.startswith("column-") and (index := number(post.get(name))) is not None
    }
    done = reread_job(
        job_id=job.pk,
        actor=actor_of(request),
        encoding=post.get("encoding", ""),
        mapping=mapping if "columns" in post else None,
        bad_rows=post.get("bad_rows") or None,
        expected_version=version_of(request),
    )
    return back_to(request, done, _("正在按新的设置重新读取文件。"))
