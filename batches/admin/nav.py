"""The left navigation and its counts."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _l
from django.utils.translation import pgettext_lazy

from batches.domain.verbs import OPERATE
from batches.selectors.overview import nav_counts


@dataclass(frozen=True, slots=True)
class NavItem:
    """One line of the navigation."""

    url: str
    label: str | Promise
    icon: str
    current: bool
    count: int = 0
    tone: str = "info"
    #: what the count counts, for screen readers
    count_label: str | Promise = ""


#: route name, label, icon, permission needed to see it
_ITEMS: tuple[tuple[str, Promise, str, str], ...] = (
    ("index", _l("总览"), "gauge", ""),
    ("jobs", pgettext_lazy("plural", "作业"), "stack", ""),
    ("job_new", _l("新建作业"), "plus", OPERATE),
    ("reconcile", _l("待核实"), "question", ""),
    ("accounts", pgettext_lazy("plural", "账号"), "person", ""),
    ("batches_gateway_changelist", pgettext_lazy("plural", "网关"), "plug", "batches.view_gateway"),
    ("alerts", pgettext_lazy("plural", "告警"), "bell", ""),
    ("audit", _l("审计"), "log", ""),
    ("auth_user_changelist", _l("用户与权限"), "key", "auth.view_user"),
)
#: further addresses at which an item is the current one
_BELOW = {
    "auth_user_changelist": ("/admin/auth/",),
    "batches_gateway_changelist": ("/admin/batches/gateway/",),
    "accounts": ("/admin/batches/account/",),
}


def nav_for(request: HttpRequest) -> list[NavItem]:
    """The items this person may see; the longest address that fits is the current one."""
    user: User | AnonymousUser = request.user
    shown = [
        (name, label, icon, reverse(f"admin:{name}"))
        for name, label, icon, permission in _ITEMS
        if not permission or user.has_perm(permission)
    ]
    counts = nav_counts()
    badges = {
        "jobs": (counts.running, "info", _l("个运行中的作业")),
        "reconcile": (counts.in_doubt, "doubt", _l("条待核实")),
        "alerts": (counts.alerts, "bad", _l("条未解除的告警")),
    }
    current = _current(request.path, [(name, url) for name, _, _, url in shown])
    return [
        NavItem(url, label, icon, name == current, *badges.get(name, ()))
        for name, label, icon, url in shown
    ]


def _current(path: str, urls: list[tuple[str, str]]) -> str:
    fitting = [
        (len(prefix), name)
        for name, url in urls
        for prefix in (url, *_BELOW.get(name, ()))
        if path == prefix or (name != "index" and path.startswith(prefix))
    ]
    return max(fitting)[1] if fitting else ""
