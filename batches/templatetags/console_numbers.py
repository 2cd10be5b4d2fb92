"""Counts, shares, rates and the widths of bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.formats import number_format
from django.utils.translation import gettext

from batches.domain.text import N_
from batches.models import Job
from batches.selectors.progress import Minute, Progress

from .console_times import clock
from .library import register


@register.filter
def share(percent: float | None) -> str:
    """A percentage that never reads 0 or 100 for something or not all."""
    if percent is None:
        return "—"
    if percent in (0, 100):
        return f"{percent:.0f}%"
    if 0 < percent < 0.1:
        return "<0.1%"
    if 99.9 < percent < 100:
        return ">99.9%"
    return f"{number_format(percent, 1)}%"


@register.filter
def rate(per_min: float | None) -> str:
    """A rate per minute: one decimal only where it matters."""
    if not per_min:
        return "0"
    return number_format(per_min, 1 if per_min < 10 else 0)


@register.simple_tag
def bar_width(part: float, whole: float) -> str:
    """`part` of `whole` in thousandths of a bar; something is never nothing."""
    if not whole or part <= 0:
        return "0"
    return str(min(1000, max(7, round(part * 1000 / whole))))


@register.filter
def stage_marks(job: Job) -> list[int]:
    """Where the checkpoints stand on the budget's bar."""
    limit = job.budget_limit or 0
    return [round(stage * 1000 / limit) - 2 for stage in job.stages if 0 < stage < limit]


@register.filter
def top(values: Sequence[int]) -> int:
    return max(values, default=0)


@register.filter
def percent_of_one(part: float) -> str:
    return f"{round(part * 100)}%"


@register.inclusion_tag("console/_spark.html")
def spark(values: Sequence[int], label: str = "") -> dict[str, object]:
    """One thin bar per minute."""
    top = max(values, default=0) or 1
    return {
        "bars": [
            {"x": index * 6, "y": 30 - height, "height": height}
            for index, value in enumerate(values)
            if (height := round(value * 30 / top, 1) if value else 0)
        ],
        "length": len(values) * 6,
        "label": label,
        "top": max(values, default=0),
    }


#: from the ground up; the names are those of the bar's parts
_PARTS = (
    ("confirmed", N_("已确认")),
    ("underway", N_("已提交")),
    ("in_doubt", N_("存疑")),
    ("failed", N_("失败")),
)


@register.inclusion_tag("console/_minute_chart.html")
def minute_chart(minutes: Sequence[Minute]) -> dict[str, object]:
    """One stacked bar per minute, and the same numbers as a table; something is never nothing."""
    top = max((minute.total for minute in minutes), default=0)
    parts = []
    for index, minute in enumerate(minutes):
        ground = 60.0
        counts = (minute.confirmed, minute.underway, minute.in_doubt, minute.failed)
        for (key, label), count in zip(_PARTS, counts, strict=True):
            if not count:
                continue
            height = max(1.5, round(count * 58 / top, 1))
            ground -= height
            title = (
                f"{clock(minute.at)} {gettext(label)} {number_format(count, force_grouping=True)}"
            )
            parts.append(
                {"key": key, "x": index * 10, "y": ground, "height": height, "title": title}
            )
    return {
        "parts": parts,
        "length": len(minutes) * 10,
        "top": top,
        "first": clock(minutes[0].at) if minutes else "",
        "last": clock(minutes[-1].at) if minutes else "",
        "minutes": [minute for minute in reversed(minutes) if minute.total],
    }


@register.filter
def grouped(value: int) -> str:
    """A count inside a sentence."""
    return number_format(value, force_grouping=True)


@register.filter
def unlocalized(value: object) -> str:
    """A number for a machine: no thousands separator."""
    return str(value)


@register.filter
def sent(progress: Progress) -> int:
    """What has left for good: confirmed, waiting for a confirmation, or in doubt."""
    return progress.confirmed + progress.submitted


@register.filter
def plus_one(value: int) -> str:
    return str(value + 1)


DUPLICATE = "duplicate"


@register.filter
def duplicates(report: Mapping[str, Any]) -> int:
    """Rows of a file that repeat another one."""
    return sum(
        reason["count"] for reason in report.get("by_reason") or [] if reason["code"] == DUPLICATE
    )


@register.filter
def invalid(report: Mapping[str, Any]) -> int:
    """Rows of a file that are wrong in themselves."""
    return int(report.get("rejected") or 0) - duplicates(report)


@register.filter
def hundred(part: float) -> str:
    """A share of one as a percentage's number."""
    return f"{part * 100:g}"
