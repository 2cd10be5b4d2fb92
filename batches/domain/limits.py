"""What the limits of a job may be, whoever sets them and whenever."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, time, timedelta

from .breaker import Thresholds
from .problems import Problem, Term
from .text import N_

#: most that a column holds, with room for what is added to it
NUMBER_MAX = 2_000_000_000
#: most items that one request may name one by one
NAMED_ITEMS_MAX = 50_000
CALL_SIZE_MAX = 50
ATTEMPTS_MAX = 20
PRIORITY_MAX = 100
STREAK_MAX = 1_000
WINDOW_MAX = 100_000
#: a start this far in the past is a slow form or clock, no mistake
START_TOLERANCE = timedelta(minutes=1)
#: a start later than this is a slip of the year
START_AHEAD_MAX = timedelta(days=366)


def budget_problems(budget: int | None) -> list[Problem]:
    if budget is None or 1 <= budget <= NUMBER_MAX:
        return []
    return [
        Problem(
            "budget_range",
            N_("预算必须是 1 到 %(most)s 的整数；不限预算请留空。"),
            {"most": NUMBER_MAX},
        )
    ]


def stages_problems(stages: Sequence[int]) -> list[Problem]:
    rising = all(a < b for a, b in zip((0, *stages), stages, strict=False))
    if rising and all(stage <= NUMBER_MAX for stage in stages):
        return []
    return [
        Problem(
            "stages_order",
            N_("放量检查点必须是从小到大的正整数，例如 50,500；现在是 %(stages)s。"),
            {"stages": ",".join(map(str, stages))},
        )
    ]


def rate_problems(rate: int | None) -> list[Problem]:
    if rate is None or 1 <= rate <= NUMBER_MAX:
        return []
    if rate < 1:
        return [Problem("rate_range", N_("作业速率上限至少为每分钟 1 条；不限速率请留空。"))]
    return [Problem("number_too_large", N_("数字太大，最多 %(most)s。"), {"most": NUMBER_MAX})]


def hours_problems(opens: time | None, closes: time | None) -> list[Problem]:
    if (opens is None) != (closes is None):
        return [
            Problem("hours_half", N_("允许时段的起止时刻要么都填，要么都不填（不填表示全天）。"))
        ]
    if opens is not None and opens == closes:
        return [Problem("hours_empty", N_("允许时段的起止时刻不能相同；全天都可以发送请都留空。"))]
    if any(at is not None and at.tzinfo is not None for at in (opens, closes)):
        return [Problem("hours_offset", N_("允许时段按系统所在时区计算，时刻请不要带时区。"))]
    return []


def start_problems(start: datetime | None, *, now: datetime) -> list[Problem]:
    """`start` and `now` are aware."""
    if start is None:
        return []
    if start < now - START_TOLERANCE:
        return [
            Problem(
                "start_past",
                N_("定时开始 %(start)s 已经过去。要马上开始请留空，否则请填以后的时间。"),
                {"start": _clock(start)},
            )
        ]
    if start > now + START_AHEAD_MAX:
        return [
            Problem(
                "start_far",
                N_("定时开始 %(start)s 在一年以后，请核对年份。"),
                {"start": _clock(start)},
            )
        ]
    return []


def _clock(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"


def call_size_problems(size: int) -> list[Problem]:
    return _whole(N_("每次请求的目标数"), "call_size_range", size, 1, CALL_SIZE_MAX)


def attempts_problems(attempts: int) -> list[Problem]:
    return _whole(N_("最多尝试次数"), "max_attempts_range", attempts, 1, ATTEMPTS_MAX)


def priority_problems(priority: int) -> list[Problem]:
    return _whole(N_("优先级"), "priority_range", priority, -PRIORITY_MAX, PRIORITY_MAX)


def breaker_problems(at: Thresholds) -> list[Problem]:
    found = [
        *_whole(N_("分片连续失败上限"), "breaker_streak_range", at.streak, 1, STREAK_MAX),
        *_share(N_("作业失败率上限"), "breaker_ratio_range", at.ratio),
        *_whole(N_("失败率统计条数"), "breaker_window_range", at.window, 1, WINDOW_MAX),
        *_whole(N_("失败率最少样本"), "breaker_sample_range", at.min_sample, 1, WINDOW_MAX),
        *_share(N_("熔断分片占比上限"), "breaker_share_range", at.shard_share),
    ]
    if not found and at.min_sample > at.window:
        found.append(
            Problem(
                "breaker_sample_over_window",
                N_("失败率最少样本 %(sample)s 不能大于统计条数 %(window)s，否则永远不会熔断。"),
                {"sample": at.min_sample, "window": at.window},
            )
        )
    return found


def _whole(label: str, code: str, value: int, least: int, most: int) -> list[Problem]:
    if least <= value <= most:
        return []
    return [
        Problem(
            code,
            N_("“%(label)s”必须是 %(least)s 到 %(most)s 的整数，现在是“%(value)s”。"),
            {"label": Term(label), "least": least, "most": most, "value": value},
        )
    ]


def _share(label: str, code: str, value: float) -> list[Problem]:
    if 0 < value <= 1:
        return []
    return [
        Problem(
            code,
            N_("“%(label)s”必须大于 0、最多为 1（例如 0.5 表示一半），现在是 %(value)s。"),
            {"label": Term(label), "value": f"{value:g}"},
        )
    ]
