"""Times and lengths of time in an operator's words."""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from .library import register


@register.filter
def ago(moment: datetime | None) -> SafeString:
    """How long ago; the page goes on counting by itself."""
    if moment is None:
        return format_html('<span class="quiet">{}</span>', "—")
    seconds = max(0, int((timezone.now() - moment).total_seconds()))
    return format_html(
        '<time data-ago datetime="{}" title="{}">{}</time>',
        moment.isoformat(timespec="seconds"),
        date_format(timezone.localtime(moment), "Y-m-d H:i:s"),
        ago_text(seconds),
    )


def ago_text(seconds: int) -> str:
    for unit, size in _AGO:
        if seconds >= size:
            return _ago_pattern(unit) % (seconds // size)
    return _ago_pattern("seconds") % seconds


_AGO = (("days", 86400), ("hours", 3600), ("minutes", 60))


def _ago_pattern(unit: str) -> str:
    match unit:
        case "days":
            return _("%s 天前")
        case "hours":
            return _("%s 小时前")
        case "minutes":
            return _("%s 分钟前")
        case _:
            return _("%s 秒前")


@register.simple_tag
def ago_patterns() -> SafeString:
    """The same words for the script that counts on."""
    return format_html(
        ' data-seconds="{}" data-minutes="{}" data-hours="{}" data-days="{}"',
        *(_ago_pattern(unit) for unit in ("seconds", "minutes", "hours", "days")),
    )


@register.simple_tag
def server_now() -> str:
    return timezone.now().isoformat()


@register.filter
def minutes_text(minutes: float | None) -> str:
    """A length of time for people, rounded to what matters."""
    if minutes is None:
        return "—"
    if minutes < 1:
        return _("不到 1 分钟")
    if minutes < 60:
        return _("%(n)s 分钟") % {"n": round(minutes)}
    if minutes < 60 * 24:
        hours, rest = divmod(round(minutes), 60)
        if rest and hours < 10:
            return _("%(h)s 小时 %(m)s 分") % {"h": hours, "m": rest}
        return _("%(n)s 小时") % {"n": hours + (rest >= 30)}
    days, rest = divmod(round(minutes / 60), 24)
    return (
        _("%(d)s 天 %(h)s 小时") % {"d": days, "h": rest} if rest else _("%(d)s 天") % {"d": days}
    )


@register.simple_tag
def range_text(low: float | None, high: float | None) -> str:
    """From `low` to `high` minutes; one length where they read the same."""
    if low is None:
        return "—"
    if (low if high is None else high) < 1:
        return minutes_text(low)
    first, last = minutes_text(max(low, 1)), minutes_text(high)
    if high is None or first == last:
        return _("约 %(length)s") % {"length": first}
    return _("约 %(first)s 至 %(last)s") % {"first": first, "last": last}


@register.filter
def clock(value: datetime) -> str:
    """Hours and minutes in the installation's zone."""
    return date_format(timezone.localtime(value), "H:i")


@register.filter
def moment(value: datetime | None) -> str:
    """A point in time to the minute; the year only where it is not this one."""
    if value is None:
        return "—"
    local = timezone.localtime(value)
    this_year = local.year == timezone.localtime().year
    return date_format(local, "m-d H:i" if this_year else "Y-m-d H:i")


@register.filter
def second(value: datetime | None) -> str:
    """A point in time to the second; the date only where it is not today."""
    if value is None:
        return "—"
    local = timezone.localtime(value)
    today = local.date() == timezone.localdate()
    return date_format(local, "H:i:s" if today else "m-d H:i:s")
