"""审计: who did what, newest first."""

from __future__ import annotations

from datetime import date
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth import get_user_model
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from batches.domain.event_kinds import EVENT_LABELS, GUARDS, family_of
from batches.models import Job
from batches.selectors.events import SHELL, SYSTEM, audit_page

from .shell import number, page
from .verbs import actor_of

#: longest text of a filter
TEXT_MAX = 100


@require_safe
def audit(request: HttpRequest) -> HttpResponse:
    job_id = number(request.GET.get("job"))
    actor = request.GET.get("actor", "")
    account, kind, text = (_text(request, key) for key in ("account", "kind", "q"))
    first_day, last_day = _day(request.GET.get("from")), _day(request.GET.get("to"))
    before = number(request.GET.get("before"))
    user = actor_of(request)
    hidden = {family for family, needed in GUARDS.items() if not user.has_perm(needed)}
    found = audit_page(
        job_id=job_id,
        account=account,
        actor=_actor(actor),
        kind=kind,
        text=text,
        first_day=first_day,
        last_day=last_day,
        before=before,
        hidden=hidden,
    )
    asked = {
        "job": job_id,
        "account": account,
        "actor": actor,
        "kind": kind,
        "q": text,
        "from": first_day,
        "to": last_day,
    }
    kept: dict[str, Any] = {key: value for key, value in asked.items() if value}
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
            "shell": SHELL,
            "account": account,
            "text": text,
            "kind": kind,
            "kinds": sorted(
                (key, label) for key, label in EVENT_LABELS.items() if family_of(key) not in hidden
            ),
            "first_day": first_day,
            "last_day": last_day,
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
    """A user's id, the sign for the system or for command lines, or nothing."""
    return text if text in (SYSTEM, SHELL) else number(text)


def _text(request: HttpRequest, key: str) -> str:
    return request.GET.get(key, "").replace("\0", "").strip()[:TEXT_MAX]


def _day(text: str | None) -> date | None:
    """A day as the browser's date field sends it; anything else is no filter."""
    try:
        day = date.fromisoformat(text or "")
    except ValueError:
        return None
    return day if _FIRST_YEAR <= day.year <= _LAST_YEAR else None


#: what a database's timestamp and a time zone can be computed with
_FIRST_YEAR, _LAST_YEAR = 1970, 2999
