"""待核实: items of which nobody knows whether they arrived, oldest first."""

from __future__ import annotations

from collections import defaultdict
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.formats import number_format
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from batches.domain.errors import InvalidInputError, NotAllowedError, WrongStateError
from batches.domain.verbs import Verb
from batches.models import Job
from batches.selectors.items import doubt_page, doubtful_jobs, unconfirmed_total
from batches.services.permissions import may
from batches.services.reconcile import mark_items

from .shell import number, page
from .verbs import actor_of, conflict, forbidden, problem_texts, see_other, unusable


@require_safe
def queue(request: HttpRequest) -> HttpResponse:
    """All jobs' items in doubt; of one job also those that the gateway took, unconfirmed."""
    job_id = number(request.GET.get("job"))
    job = Job.objects.filter(pk=job_id).first() if job_id is not None else None
    kind = "unconfirmed" if job and request.GET.get("kind") == "unconfirmed" else "in_doubt"
    after = request.GET.get("after", "")
    found = doubt_page(job_id=job.pk if job else None, kind=kind, after=after)
    kept = ({"job": job.pk} if job else {}) | ({"kind": kind} if kind == "unconfirmed" else {})
    jobs = doubtful_jobs(chosen=job)
    return page(
        request,
        "console/reconcile.html",
        {
            "items": found.items,
            "jobs": jobs.listed,
            "more_jobs": jobs.more,
            "total": jobs.total,
            "job": job,
            "kind": kind,
            "unconfirmed": unconfirmed_total(job) if job else 0,
            "may_mark": may(actor=actor_of(request), verb=Verb.RECONCILE),
            "paged": bool(after),
            "first_page": f"?{urlencode(kept)}",
            "next_page": f"?{urlencode(kept | {'after': found.next_after})}"
            if found.next_after
            else "",
        },
        title=_("待核实"),
    )


@require_POST
def mark(request: HttpRequest) -> HttpResponse:
    """What a person found out about the chosen items (`item` = "job:item:call").

    The call is the one that the page showed: an item that was sent again since is left alone.
    """
    chosen: dict[int, list[int]] = defaultdict(list)
    calls: dict[int, int] = {}
    for text in request.POST.getlist("item"):
        job_id, item_id, call_id = (number(part) for part in (text + "::").split(":")[:3])
        if job_id is not None and item_id is not None:
            chosen[job_id].append(item_id)
            if call_id is not None:
                calls[item_id] = call_id
    delivered = request.POST.get("delivered")
    if delivered not in ("1", "0"):
        return unusable(request, [_("请选择「标记已送达」或「标记未送达」。")])
    if not chosen:
        return unusable(request, [_("请先勾选条目。")])
    marked = skipped = 0
    # before the first is marked: a job that is not there (any more) must not stop the others
    there = set(Job.objects.filter(pk__in=chosen).values_list("pk", flat=True))
    for job_id in chosen.keys() - there:
        skipped += len(chosen.pop(job_id))
    for job_id, item_ids in sorted(chosen.items()):
        try:
            done = mark_items(
                job_id=job_id,
                item_ids=item_ids,
                calls=calls,
                delivered=delivered == "1",
                actor=actor_of(request),
                reason=request.POST.get("reason", ""),
            )
        except NotAllowedError as error:
            return forbidden(request, str(error))
        except InvalidInputError as error:
            return unusable(request, problem_texts(error))
        except WrongStateError as error:
            if len(chosen) == 1:
                return conflict(request, job_id, error)
            skipped += len(item_ids)
            continue
        marked += done.marked
        skipped += done.skipped
    _tell(request, marked, skipped, delivered=delivered == "1")
    return see_other(_back(request))


def _tell(request: HttpRequest, marked: int, skipped: int, *, delivered: bool) -> None:
    if marked:
        text = _("已把 %(n)s 条标记为已送达。") if delivered else _("已把 %(n)s 条标记为未送达。")
        messages.success(request, text % {"n": number_format(marked)})
    if skipped:
        text = _("%(n)s 条已不在等待核实（可能已有结果或被他人核实），没有更改。")
        messages.warning(request, text % {"n": number_format(skipped)})


def _back(request: HttpRequest) -> str:
    """The page the person came from, if it is one of ours."""
    back = request.POST.get("back", "")
    if url_has_allowed_host_and_scheme(back, allowed_hosts=None) and back.startswith("/"):
        return back
    return reverse("admin:reconcile")
