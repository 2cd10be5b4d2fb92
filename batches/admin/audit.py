"""审计: who did what, newest first."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib.auth import get_user_model
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from batches.domain.event_kinds import EVENT_LABELS
from batches.models import Job
from batches.selectors.events import SYSTEM, audit_page

from .shell import number, page


@require_safe
def audit(request: HttpRequest) -> HttpResponse:
    job_id = number(request.GET.get("job"))
    actor = request.GET.get("actor", "")
    kind = request.GET.get("kind", "").replace("\0", "")
    before = number(request.GET.get("before"))
    found = audit_page(job_id=job_id, actor=_actor(actor), kind=kind, before=before)
    kept: dict[str, Any] = {
        key: value for key, value in (("job", job_id), ("actor", actor), ("kind", kind)) if value
    }
    return page(
        request,
        "console/audit.html",
        {
            "lines": found.lines,
            "job": Job.objects.filter(pk=job_id).first() if job_id is not None else None,
            "job_text": job_id or "",
            "actor": actor,
            "actors": get_user_model().objects.filter(is_staff=True).order_by("username")[:200],
            "system": SYSTEM,
            "kind": kind,
            "kinds": sorted(EVENT_LABELS.items()),
            "filtered": bool(kept),
            "paged": before is not None,
            "first_page": f"?{urlencode(kept)}",
            "next_page": f"?{urlencode(kept | {'before': found.next_before})}"
            if found.next_before
            else "",
        },
        title=_("审计"),
    )


def _actor(text: str) -> int | str | None:
    """A user's id, the sign for the system itself, or nothing."""
    return SYSTEM if text == SYSTEM else number(text)
