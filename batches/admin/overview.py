"""总览: what runs, what waits for a person, and why."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from batches.selectors.overview import overview as read_overview

from .shell import is_fragment, page


def overview(request: HttpRequest) -> HttpResponse:
    """The front page; for htmx its polled part, or 204 where that would read the same."""
    found = read_overview()
    if not is_fragment(request):
        return page(request, "console/overview.html", {"overview": found}, title=_("总览"))
    if request.GET.get("v") == found.mark:
        return HttpResponse(status=204)
    return render(request, "console/_overview.html", {"overview": found})
