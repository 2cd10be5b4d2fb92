"""Permissions in words."""

from __future__ import annotations

from django.apps import apps
from django.utils.translation import gettext_lazy as _l

from batches.models import Job

_ACTS = {
    "view": _l("可以查看：%(model)s"),
    "add": _l("可以添加：%(model)s"),
    "change": _l("可以修改：%(model)s"),
    "delete": _l("可以删除：%(model)s"),
}


def permission_words(permission: str) -> str:
    """`app.codename` in words, as it is where there are none; Django's own are in English."""
    app, _dot, codename = permission.partition(".")
    own = dict(Job._meta.permissions)  # noqa: SLF001 - Django's documented model API
    if app == "batches" and codename in own:
        return str(own[codename])
    act, _underscore, model_name = codename.partition("_")
    try:
        model = apps.get_model(app, model_name)
    except (LookupError, ValueError):
        return permission
    if act not in _ACTS:
        return permission
    return str(_ACTS[act]) % {"model": model._meta.verbose_name}  # noqa: SLF001
