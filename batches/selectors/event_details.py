"""What an event changed, in the reader's language."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any

from django.contrib.auth.models import Group, User
from django.core.exceptions import FieldDoesNotExist
from django.db.models import Model
from django.utils import timezone
from django.utils.formats import number_format
from django.utils.translation import gettext as _

from batches.domain.categories import category_info
from batches.domain.event_kinds import family_of
from batches.domain.states import ITEM_LABELS, JOB_LABELS, PAUSE_LABELS, SHARD_LABELS, PauseReason
from batches.domain.text import N_
from batches.models import Account, Event, Gateway

from .people import permission_words

#: longest value that a line shows
VALUE_MAX = 200


def detail_of(event: Event, *, without: Collection[str] = ()) -> str:
    """Every value that changed but those `without`, and the one number that is worth showing."""
    return _("；").join([*_changes(event, without), *_count(event.data)])


def _changes(event: Event, without: Collection[str]) -> list[str]:
    before, after = _side(event, "before"), _side(event, "after")
    family = family_of(event.kind)
    said: list[str] = []
    for name in {**before, **after}:
        old, new = before.get(name), after.get(name)
        if old == new or name in _PART_OF_ANOTHER or name in without:
            continue
        if name in _SENTENCES and family != "gateway":
            text, shown = _SENTENCES[name]
            said.append(_(text) % {"before": shown(old), "after": shown(new)})
        elif name == "status":
            said += _moved(before, after, family)
        else:
            said.append(_named(family, name, before, after))
    if "window_from" in after:
        said.append(f"{_hours(before)} → {_hours(after)}")
    for key, text in _SECRETS.items():
        labels = [label_of(family, name) for name in event.data.get(key) or ()]
        said += [_(text) % {"label": label} for label in labels]
    return said


def _side(event: Event, name: str) -> Mapping[str, Any]:
    """What was or is; an item's line says its state alone, or why it was in doubt."""
    value = event.data.get(name) or {}
    return value if isinstance(value, Mapping) else {"status": value}


def _named(family: str, name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """One field: what it is now, what it was if it is no more, or both."""
    old, new = before.get(name), after.get(name)
    values: dict[str, str] = {"label": label_of(family, name)}
    if isinstance(old, list) and isinstance(new, list):
        added = [one for one in new if one not in old]
        removed = [one for one in old if one not in new]
        parts = [
            text % {"what": value_words(name, what)}
            for text, what in ((_("加上 %(what)s"), added), (_("去掉 %(what)s"), removed))
            if what
        ]
        return _("%(label)s：%(change)s") % (values | {"change": _("，").join(parts)})
    if name in before and name in after:
        values |= {"before": value_words(name, old), "after": value_words(name, new)}
        return _("%(label)s：%(before)s → %(after)s") % values
    return _("%(label)s：%(value)s") % (
        values | {"value": value_words(name, new if name in after else old)}
    )


def label_of(family: str, name: str) -> str:
    """A field as its form calls it."""
    if name in _LABELS:
        return _(_LABELS[name])
    try:
        return str(_MODELS[family]._meta.get_field(name).verbose_name)  # type: ignore[union-attr]  # noqa: SLF001
    except (KeyError, FieldDoesNotExist, AttributeError):
        return name


def value_words(name: str, value: Any) -> str:
    """A stored value for a reader."""
    match value:
        case None if name in _UNLIMITED:
            return _("不限")
        case None | "" | []:
            return _("（空）")
        case dict() if not value:
            return _("（空）")
        case bool():
            return _("是") if value else _("否")
        case int():
            return str(number_format(value, force_grouping=True))
        case float():
            return f"{value:g}"
        case list():
            known = name == "permissions"
            return _("、").join(permission_words(one) if known else str(one) for one in value)
        case dict():
            text = json.dumps(value, ensure_ascii=False, sort_keys=True)
        case _ if name == "dialect":
            text = str(dict(Gateway.Dialect.choices).get(value, value))
        case _:
            text = str(value)
    return text if len(text) <= VALUE_MAX else text[: VALUE_MAX - 1] + "…"


def _moved(before: Mapping[str, Any], after: Mapping[str, Any], family: str) -> list[str]:
    """已暂停（预算用完） → 运行中"""
    if not before.get("status"):
        return []
    labels = _STATES.get(family, JOB_LABELS)
    sides = []
    for side in (before, after):
        status = side["status"]
        words = _(labels[status] if status in labels else category_info(status).label)
        reason = str(side.get("pause_reason") or side.get("reason") or "")
        if reason in _PAUSES:
            words += _("（%(reason)s）") % {"reason": _(_PAUSES[reason])}
        sides.append(words)
    return [" → ".join(sides)]


def _count(data: Mapping[str, Any]) -> list[str]:
    for key, text in _COUNTS:
        if isinstance(data.get(key), int) and data[key]:
            return [_(text) % {"n": _number(data[key])}]
    own = str(data.get("reason") or "")
    return [_(_PAUSES[own])] if own in _PAUSES and own != PauseReason.OPERATOR else []


def _number(value: int | None) -> str:
    return _("不限") if value is None else str(number_format(value, force_grouping=True))


def _start(value: str | None) -> str:
    if value is None:
        return _("立即")
    return f"{timezone.localtime(datetime.fromisoformat(value)):%m-%d %H:%M}"


def _hours(columns: Mapping[str, Any]) -> str:
    opens, closes = columns.get("window_from"), columns.get("window_to")
    return f"{opens[:5]}–{closes[:5]}" if opens and closes else _("全天")


_MODELS: Mapping[str, type[Model]] = {
    "account": Account,
    "gateway": Gateway,
    "user": User,
    "role": Group,
}
_STATES: Mapping[str, Mapping[Any, str]] = {"shard": SHARD_LABELS, "item": ITEM_LABELS}
#: what a field's own name does not say, or no model has
_LABELS: Mapping[str, str] = {
    "groups": N_("角色"),
    "permissions": N_("权限"),
    "options.headers": N_("选项中的请求头"),
    "streak": N_("分片连续失败上限"),
    "ratio": N_("作业失败率上限"),
    "window": N_("失败率统计条数"),
    "min_sample": N_("失败率最少样本"),
    "shard_share": N_("熔断分片占比上限"),
}
#: what became of a value that is never told
_SECRETS: Mapping[str, str] = {
    "set": N_("%(label)s：已设置"),
    "replaced": N_("%(label)s：已更换"),
    "cleared": N_("%(label)s：已清除"),
}
#: said together with another field of the same event
_PART_OF_ANOTHER = frozenset({"window_from", "window_to", "pause_reason", "reason"})
_UNLIMITED = frozenset({"rate_limit_per_min", "max_concurrent"})
#: column of a job → the sentence, and how a value of it is shown
_SENTENCES: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "rate_limit_per_min": (N_("%(before)s → %(after)s 条/分"), _number),
    "budget_limit": (N_("%(before)s → %(after)s 条"), _number),
    "priority": ("%(before)s → %(after)s", _number),
    "start_at": ("%(before)s → %(after)s", _start),
}
_PAUSES: Mapping[str, str] = {reason.value: text for reason, text in PAUSE_LABELS.items()}
#: the one number of an event that is worth showing, the first that it has
_COUNTS: tuple[tuple[str, str], ...] = (
    ("inflight", N_("在途 %(n)s 条")),
    ("stage", N_("检查点 %(n)s 条")),
    ("calls", N_("%(n)s 次调用")),
    ("retried", N_("%(n)s 条")),
    ("count", N_("%(n)s 条")),
    ("items", N_("%(n)s 条")),
    ("accounts", N_("%(n)s 个账号")),
    ("total", N_("共 %(n)s 条")),
)
