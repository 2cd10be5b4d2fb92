"""A job's report as aligned lines for a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from batches.domain.categories import category_info
from batches.domain.states import JOB_LABELS, SHARD_LABELS, JobStatus, ShardStatus
from batches.domain.text import N_

#: shards and failures shown before the rest is only counted
MOST_LINES = 40

_ITEMS = (
    ("total", N_("合计")),
    ("pending", N_("待执行")),
    ("submitted", N_("已提交")),
    ("confirmed", N_("已确认")),
    ("failed", N_("已失败")),
    ("abandoned", N_("已放弃")),
    ("in_doubt", N_("其中存疑")),
)


def width(text: str) -> int:
    """Columns of a terminal: East Asian wide characters take two."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def pad(text: str, columns: int, *, right: bool = False) -> str:
    blanks = " " * max(0, columns - width(text))
    return blanks + text if right else text + blanks


def table(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> list[str]:
    """Columns as wide as their widest cell; numbers to the right."""
    cells = [list(head), *([str(cell) for cell in line] for line in lines)]
    widths = [max(width(row[at]) for row in cells) for at in range(len(head))]
    return [
        "  "
        + "  ".join(
            pad(cell, widths[at], right=cell.lstrip("-").isdigit() or (not number and at > 0))
            for at, cell in enumerate(row)
        ).rstrip()
        for number, row in enumerate(cells)
    ]


def report_text(report: Mapping[str, Any], *, gettext: Callable[[str], str]) -> str:
    """Everything of the report that a person asks for first."""
    say = gettext
    none = say("不限")
    items, budget, rate = report["items"], report["budget"], report["rate"]
    status = say(JOB_LABELS[JobStatus(report["status"])])
    facts = [
        (say("作业"), f"#{report['id']} {report['name']}"),
        (say("状态"), f"{status}  {report['why']}"),
        (say("条目"), "  ".join(f"{say(label)} {items[key]}" for key, label in _ITEMS)),
        (say(N_("未导入行")), str(report["rejected_rows"])),
        (say("预算"), f"{budget['used']} / {_or(budget['limit'], none)}"),
        (
            say("速率（条/分）"),
            f"{rate['achieved_per_min']:g} / {_or(rate['limit_per_min'], none)}",
        ),
        (say(N_("创建")), _time(report["created_at"])),
        (say(N_("开始")), _time(report["started_at"])),
        (say(N_("结束")), _time(report["finished_at"])),
    ]
    wide = max(width(label) for label, _value in facts)
    lines = [f"{pad(label, wide)}  {value}".rstrip() for label, value in facts]
    lines += _failures(report["failures"], say)
    lines += _shards(report["shards"], say)
    return "\n".join(lines)


def _failures(failures: Sequence[Mapping[str, Any]], say: Callable[[str], str]) -> list[str]:
    if not failures:
        return []
    return [
        "",
        say("失败分类"),
        *table(
            (say("分类"), say("错误码"), say("条数")),
            (
                (say(category_info(row["category"]).label), row["code"], row["count"])
                for row in failures[:MOST_LINES]
            ),
        ),
        *_rest(len(failures), say),
    ]


def _shards(shards: Sequence[Mapping[str, Any]], say: Callable[[str], str]) -> list[str]:
    if not shards:
        return []
    head = (say("分片"), say("账号"), say("状态"), *(say(label) for _key, label in _ITEMS))
    return [
        "",
        say("分片"),
        *table(
            head,
            (
                (
                    row["ordinal"],
                    row["account"],
                    say(SHARD_LABELS[ShardStatus(row["status"])]),
                    *(row["items"][key] for key, _label in _ITEMS),
                )
                for row in shards[:MOST_LINES]
            ),
        ),
        *_rest(len(shards), say),
    ]


def _rest(count: int, say: Callable[[str], str]) -> list[str]:
    if count <= MOST_LINES:
        return []
    return ["  " + say(N_("还有 %(count)d 行，见 --json。")) % {"count": count - MOST_LINES}]


def _or(value: int | None, none: str) -> str:
    return none if value is None else str(value)


def _time(value: str | None) -> str:
    """The report's ISO time in the installation's time zone, to the second."""
    if value is None:
        return "-"
    from datetime import datetime

    from django.utils import timezone

    return f"{timezone.localtime(datetime.fromisoformat(value)):%Y-%m-%d %H:%M:%S}"
