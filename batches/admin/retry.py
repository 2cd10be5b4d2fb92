"""重试失败条目: what would be tried again and what not, then the act."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from batches.domain.errors import InvalidInputError
from batches.domain.states import JobStatus, PauseReason
from batches.domain.verbs import Verb
from batches.models import Job
from batches.services import jobs as services

from .failures import chosen_code
from .job_dialogs import ask, check
from .shell import number
from .verbs import actor_of, back_to, verb, version_of


@verb("GET")
def retry(request: HttpRequest, job: Job) -> HttpResponse:
    """All failed items for which it makes sense, or those of one category, code or shard."""
    asked = request.GET if request.method == "GET" else request.POST
    category = asked.get("category") or None
    code = chosen_code(request)
    ordinal = number(asked.get("shard"))
    items = [pk for text in asked.getlist("item") if (pk := number(text)) is not None] or None
    title = _title(job, ordinal)
    check(request, job, Verb.RETRY_FAILED)
    preview = services.preview_retry(
        job_id=job.pk, category=category, code=code, shard_ordinal=ordinal, item_ids=items
    )
    chosen = {"category": category, "code": code, "ordinal": ordinal, "items": items}
    # a selection of rows comes as a POST that has yet to be confirmed
    if request.method == "GET" or "ask" in request.POST:
        return ask(request, job, "retry", title=title, preview=preview, chosen=chosen)
    try:
        done = services.retry_failed(
            job_id=job.pk,
            actor=actor_of(request),
            reason=request.POST.get("reason", ""),
            category=category,
            code=code,
            shard_ordinal=ordinal,
            item_ids=items,
            expected_version=version_of(request),
        )
    except InvalidInputError as error:
        return ask(request, job, "retry", title=title, error=error, preview=preview, chosen=chosen)
    return back_to(request, done, _done(done))


def _done(job: Job) -> str:
    if job.status not in (JobStatus.PAUSED, JobStatus.PAUSING):
        text = _("失败条目已放回待执行，「%(name)s」会继续发送。")
    elif job.pause_reason == PauseReason.BUDGET:
        text = _("失败条目已放回待执行。「%(name)s」的预算已用完，提高预算并继续后才会发送。")
    elif job.pause_reason == PauseReason.STAGE:
        text = _("失败条目已放回待执行。「%(name)s」停在检查点，确认放量后才会发送。")
    else:
        text = _("失败条目已放回待执行。「%(name)s」现在是暂停的，点「继续」后才会发送。")
    return text % {"name": job.name}


def _title(job: Job, ordinal: int | None) -> str:
    if ordinal is None:
        return _("重试「%(name)s」的失败条目？") % {"name": job.name}
    return _("重试「%(name)s」分片 #%(ordinal)s 的失败条目？") % {
        "name": job.name,
        "ordinal": ordinal,
    }
