"""账号: rate, condition, work, and the switch."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import pgettext
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from batches.domain.errors import InvalidInputError, NotAllowedError
from batches.domain.verbs import CHANGE_ACCOUNTS, OPERATE
from batches.models import Account, Job
from batches.selectors.accounts import account_page
from batches.services.account_switch import restore_account, set_account_active

from .shell import number, page
from .verbs import actor_of, forbidden, problem_texts, see_other


@require_safe
def account_list(request: HttpRequest) -> HttpResponse:
    search = request.GET.get("q", "").replace("\0", "").strip()[:100]
    trouble = request.GET.get("trouble") == "1"
    job_id = number(request.GET.get("job"))
    after = number(request.GET.get("after")) or 0
    found = account_page(search=search, job_id=job_id, trouble=trouble, after=after)
    kept: dict[str, Any] = {
        key: value
        for key, value in (("q", search), ("trouble", "1" if trouble else ""), ("job", job_id))
        if value
    }
    without_trouble = {key: value for key, value in kept.items() if key != "trouble"}
    return page(
        request,
        "console/accounts.html",
        {
            "rows": found.rows,
            "search": search,
            "trouble": trouble,
            "job": Job.objects.filter(pk=job_id).first() if job_id is not None else None,
            "all_url": f"?{urlencode(without_trouble)}",
            "trouble_url": f"?{urlencode(without_trouble | {'trouble': '1'})}",
            "may_change": request.user.has_perm(CHANGE_ACCOUNTS),
            "may_test": request.user.has_perm(OPERATE),
            "may_add": request.user.has_perm("batches.add_account"),
            "paged": after > 0,
            "first_page": f"?{urlencode(kept)}",
            "next_page": f"?{urlencode(kept | {'after': found.next_after})}"
            if found.next_after
            else "",
        },
        title=pgettext("plural", "账号"),
    )


@require_http_methods(["GET", "POST"])
def set_active(request: HttpRequest, account_id: int) -> HttpResponse:
    """GET asks for the reason of switching off; POST switches (`active` = 1 or 0)."""
    account = get_object_or_404(Account.objects.select_related("gateway"), pk=account_id)
    if not request.user.has_perm(CHANGE_ACCOUNTS):
        return forbidden(request, _("您没有权限：修改账号。请联系主管。"))
    if request.method == "GET":
        return _ask(request, account)
    wanted = request.POST.get("active")
    if wanted not in ("1", "0"):
        return _ask(request, account, [_("请选择启用或停用。")])
    active = wanted == "1"
    try:
        set_account_active(
            account_id=account_id,
            actor=actor_of(request),
            active=active,
            reason=request.POST.get("reason", ""),
        )
    except NotAllowedError as error:
        return forbidden(request, str(error))
    except InvalidInputError as error:
        return _ask(request, account, problem_texts(error))
    text = _("账号「%(name)s」已启用。") if active else _("账号「%(name)s」已停用。")
    messages.success(request, text % {"name": account})
    return see_other(reverse("admin:accounts"))


@require_POST
def restore(request: HttpRequest, account_id: int) -> HttpResponse:
    """A person has logged the account in again: its shards go on in every job."""
    get_object_or_404(Account, pk=account_id)
    try:
        done = restore_account(account_id=account_id, actor=actor_of(request))
    except NotAllowedError as error:
        return forbidden(request, str(error))
    if done.changed:
        text = _("账号「%(name)s」已恢复，%(count)s 个分片继续发送。")
    else:
        text = _("账号「%(name)s」没有登录失效，不需要恢复。")
    values = {"name": done.account, "count": number_format(done.shards)}
    messages.success(request, text % values)
    return see_other(reverse("admin:accounts"))


def _ask(request: HttpRequest, account: Account, texts: list[str] | None = None) -> HttpResponse:
    row = account_page(after=account.pk - 1).rows[0]
    return page(
        request,
        "console/account_off.html",
        {"account": account, "row": row, "texts": texts or []},
        title=_("停用账号「%(name)s」？") % {"name": account},
        crumbs=[(reverse("admin:accounts"), pgettext("plural", "账号"))],
        status=422 if texts else 200,
    )
