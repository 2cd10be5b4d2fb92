"""测试发送: one text through one account, from its own page."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from django.contrib import messages
from django.contrib.sessions.models import Session
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import pgettext
from django.views.decorators.http import require_http_methods

from batches.domain.errors import InvalidInputError, NotAllowedError, WrongStateError
from batches.domain.verbs import OPERATE
from batches.models import Account
from batches.services.permissions import is_allowed
from batches.services.test_send import send_test

from .shell import page
from .verbs import actor_of, forbidden, problem_texts, see_other

#: in the session: mark → account of each form that has not been sent yet, the oldest first
_UNUSED = "test_send_forms"
#: forms that one person may have open; older ones are forgotten
_OPEN_MOST = 20


@require_http_methods(["GET", "POST"])
def test_send(request: HttpRequest, account_id: int) -> HttpResponse:
    """GET shows the form; POST sends once, however often the same form is submitted.

    Where surely nothing was sent, the form comes back as it was typed, to be sent anew.
    """
    account = get_object_or_404(Account.objects.select_related("gateway"), pk=account_id)
    if not is_allowed(actor=actor_of(request), permission=OPERATE):
        return forbidden(request, _("您没有权限：测试发送。请联系主管。"))
    if request.method == "GET":
        return _form(request, account)
    here = reverse("admin:account_test", args=[account_id])
    if not _take_mark(request, account_id):
        messages.warning(request, _("这个表单已经提交过或已失效，没有再发一次。结果见审计。"))
        return see_other(here)
    try:
        result = send_test(
            account_id=account_id,
            target=request.POST.get("target", ""),
            content=request.POST.get("content", "").replace("\r\n", "\n"),
            actor=actor_of(request),
        )
    except NotAllowedError as error:
        return forbidden(request, str(error))
    except InvalidInputError as error:
        return _form(request, account, problem_texts(error), status=422)
    except WrongStateError as error:
        return _form(request, account, [str(error)], status=409)
    if result.outcome == "accepted":
        text = _("%(message)s（%(ms)s 毫秒）") % {
            "message": result.message,
            "ms": result.duration_ms,
        }
        messages.success(request, text)
    elif result.outcome == "unknown":
        # what may have arrived is not offered for sending again
        messages.error(request, result.message)
    else:
        return _form(request, account, [result.message])
    return see_other(here)


def _form(
    request: HttpRequest, account: Account, texts: list[str] | None = None, status: int = 200
) -> HttpResponse:
    return page(
        request,
        "console/test_send.html",
        {
            "account": account,
            "form_mark": _new_mark(request, account.pk),
            "texts": texts or [],
            "target": request.POST.get("target", ""),
            "content": request.POST.get("content", ""),
        },
        title=_("测试发送 · %(name)s") % {"name": account},
        crumbs=[(reverse("admin:accounts"), pgettext("plural", "账号"))],
        status=status,
    )


def _new_mark(request: HttpRequest, account_id: int) -> str:
    mark = secrets.token_urlsafe(12)

    def add(marks: dict[str, int]) -> None:
        marks[mark] = account_id
        for oldest in list(marks)[:-_OPEN_MOST]:
            del marks[oldest]

    _change_marks(request, add)
    return mark


def _take_mark(request: HttpRequest, account_id: int) -> bool:
    """Whether this form is sent for the first time; of two clicks one alone is."""
    mark = request.POST.get("form", "")
    taken = False

    def take(marks: dict[str, int]) -> None:
        nonlocal taken
        taken = marks.get(mark) == account_id
        if taken:
            del marks[mark]

    _change_marks(request, take)
    return taken


def _change_marks(request: HttpRequest, change: Callable[[dict[str, int]], None]) -> None:
    """Change the marks as they are now, under the session's lock, and at once.

    The request's own copy of the session is as old as the request, and is written with the
    answer: a second click or another tab comes in between.
    """
    session = request.session
    with transaction.atomic():
        row = Session.objects.select_for_update().filter(pk=session.session_key).first()
        if row is None:
            return  # signed out meanwhile
        kept = row.get_decoded()
        marks: dict[str, int] = kept.setdefault(_UNUSED, {})
        change(marks)
        row.session_data = Session.objects.encode(kept)
        row.save(update_fields=["session_data"])
    # should anything else have the request write its copy, no used mark may come back with it
    modified = session.modified
    session[_UNUSED] = marks
    session.modified = modified
