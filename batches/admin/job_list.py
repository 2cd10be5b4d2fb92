"""作业列表: tabs, search, one line per job."""

from __future__ import annotations

from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.utils.translation import pgettext

from batches.domain.verbs import Verb
from batches.selectors.jobs import BUDGET_TAB, TABS, job_page, tabs
from batches.services.permissions import may

from .shell import number, page
from .verbs import actor_of


def job_list(request: HttpRequest) -> HttpResponse:
    tab = request.GET.get("tab", "")
    tab = tab if tab in (*TABS, BUDGET_TAB) else ""
    search = request.GET.get("q", "").replace("\0", "").strip()[:200]
    before = number(request.GET.get("before"))
    found = job_page(tab=tab, search=search, before=before)
    kept = {key: value for key, value in (("tab", tab), ("q", search)) if value}
    return page(
        request,
        "console/job_list.html",
        {
            "tabs": tabs(),
            "tab": tab,
            "search": search,
            "rows": found.rows,
            "paged": before is not None,
            "first_page": f"?{urlencode(kept)}",
            "next_page": f"?{urlencode(kept | {'before': found.next_before})}"
            if found.next_before
            else "",
            "may_operate": may(actor=actor_of(request), verb=Verb.PAUSE),
        },
        title=pgettext("plural", "作业"),
    )
