"""告警: what somebody has to look at, open ones first."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils.translation import pgettext
from django.views.decorators.http import require_safe

from batches.selectors.alerts import alert_page

from .shell import number, page


@require_safe
def alerts(request: HttpRequest) -> HttpResponse:
    before = number(request.GET.get("before"))
    found = alert_page(before=before)
    return page(
        request,
        "console/alerts.html",
        {
            "open": found.open,
            "closed": found.closed,
            "paged": before is not None,
            "first_page": "?",
            "next_page": f"?before={found.next_before}" if found.next_before else "",
        },
        title=pgettext("plural", "告警"),
    )
