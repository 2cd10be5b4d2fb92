"""Downloads: failed items and refused rows, to be corrected and uploaded again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404
from django.utils.translation import get_language, override
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from batches.domain.categories import category_info
from batches.models import Job
from batches.selectors.failures import failed_for_export
from batches.selectors.rejections import all_rejections

from .csvout import csv_response
from .failures import chosen_code, chosen_shard


@require_safe
def failures_csv(request: HttpRequest, job_id: int) -> HttpResponseBase:
    """Failed items: row number, the row as uploaded, and why.

    `category`, `code` and `shard` (an ordinal) narrow them.
    """
    job = get_object_or_404(Job, pk=job_id)
    category = request.GET.get("category", "").replace("\0", "")
    code, shard = chosen_code(request), chosen_shard(request, job)
    width = len(job.columns)
    language = get_language()

    def rows() -> Iterator[Sequence[object]]:
        # sent after the request's language was put away
        with override(language):
            for item in failed_for_export(job, category=category, code=code, shard=shard):
                info = category_info(item.category or "")
                cells = [*item.fields, *[""] * width][:width]
                told = [_(info.label), item.code, item.message, _(info.advice)]
                yield [item.row_no, *cells, *told]

    header = [_("行号"), *job.columns, _("失败分类"), _("错误码"), _("错误信息"), _("建议")]
    of_shard = "" if shard is None else f"-{shard.ordinal}"
    name = _("失败条目") + f"-{job.pk}{of_shard}.csv"
    return csv_response(name, header, rows())


@require_safe
def rejections_csv(_request: HttpRequest, job_id: int) -> HttpResponseBase:
    """Rows that did not become items: row number, the row as uploaded, and why."""
    job = get_object_or_404(Job, pk=job_id)
    width = len(job.columns)
    language = get_language()

    def rows() -> Iterator[Sequence[object]]:
        with override(language):
            for bad in all_rejections(job):
                cells = [*bad.fields, *[""] * width][:width]
                yield [bad.row_no, *cells, bad.column, bad.problem.translated(_)]

    header = [_("行号"), *job.columns, _("问题列"), _("原因")]
    name = _("问题行") + f"-{job.pk}.csv"
    return csv_response(name, header, rows())
