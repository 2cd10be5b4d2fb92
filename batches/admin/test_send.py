"""测试发送: one text through one account, from its own page."""

from __future__ import annotations

import secrets

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import pgettext
from django.views.decorators.http import require_http_methods

from batches.domain.errors import InvalidInputError, NotAllowedError, WrongStateError
from batches.models import Account
from batches.services.permissions import is_allowed
from batches.services.test_send import OPERATE, send_test

from .shell import page
from .verbs import actor_of, forbidden, problem_texts, see_other

#: the session's mark of a form that has not been sent yet
_UNUSED = "test_send_form"


@require_http_methods(["GET", "POST"])
def test_send(request: HttpRequest, account_id: int) -> HttpResponse:
    """GET shows the form; POST sends once, however often the same form is submitted."""
    account = get_object_or_404(Account.objects.select_related("gateway"), pk=account_id)
    if not is_allowed(actor=actor_of(request), permission=OPERATE):
        return forbidden(request, _("您没有权限：测试发送。请联系主管。"))
    if request.method == "GET":
        return _form(request, account)
    here = reverse("admin:account_test", args=[account_id])
    if request.POST.get("form") != request.session.pop(_UNUSED, None):
        messages.warning(request, _("这个表单已经提交过，没有再发一次。结果见审计。"))
        return see_other(here)
    request.session.save()  # now, not with the response: a second click comes while this one waits
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
    else:
        messages.error(request, result.message)
    return see_other(here)


def _form(
    request: HttpRequest, account: Account, texts: list[str] | None = None, status: int = 200
) -> HttpResponse:
    request.session[_UNUSED] = secrets.token_urlsafe(12)
    return page(
        request,
        "console/test_send.html",
        {
            "account": account,
            "form_mark": request.session[_UNUSED],
            "texts": texts or [],
            "target": request.POST.get("target", ""),
            "content": request.POST.get("content", ""),
        },
        title=_("测试发送 · %(name)s") % {"name": account},
        crumbs=[(reverse("admin:accounts"), pgettext("plural", "账号"))],
        status=status,
    )
