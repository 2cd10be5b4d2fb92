"""What limits may be, hours of the day, and thresholds changed while outcomes come in."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batches.domain import limits
from batches.domain.breaker import BreakerWindow, Thresholds
from batches.domain.hours import first_allowed, within
from batches.domain.problems import Problem

SHANGHAI = ZoneInfo("Asia/Shanghai")
NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def only(problems: list[Problem]) -> tuple[str, str]:
    (problem,) = problems
    return problem.code, str(problem)


@pytest.mark.parametrize(
    ("at", "opens", "closes", "wanted"),
    [
        ("09:00", "09:00", "21:00", True),
        ("21:00", "09:00", "21:00", False),
        ("08:59", "09:00", "21:00", False),
        ("23:00", "22:00", "06:00", True),
        ("05:59", "22:00", "06:00", True),
        ("06:00", "22:00", "06:00", False),
        ("12:00", "22:00", "06:00", False),
    ],
)
def test_within_hours_holds_their_start_and_not_their_end(
    at: str, opens: str, closes: str, wanted: bool
) -> None:
    assert within(*map(time.fromisoformat, (at, opens, closes))) is wanted


@pytest.mark.parametrize(
    ("start", "wanted"),
    [
        ("2026-05-01T10:00+08:00", "2026-05-01T12:00+08:00"),
        ("2026-05-01T12:00+08:00", "2026-05-01T12:00+08:00"),
        ("2026-05-01T13:59+08:00", "2026-05-01T13:59+08:00"),
        ("2026-05-01T14:00+08:00", "2026-05-02T12:00+08:00"),
        ("2026-05-01T03:00+00:00", "2026-05-01T12:00+08:00"),
    ],
)
def test_first_allowed_waits_for_the_hours_to_open(start: str, wanted: str) -> None:
    found = first_allowed(datetime.fromisoformat(start), time(12), time(14), SHANGHAI)
    assert found == datetime.fromisoformat(wanted)


@given(
    st.datetimes(
        min_value=datetime(2026, 1, 1),  # noqa: DTZ001 - made aware below
        max_value=datetime(2026, 12, 1),  # noqa: DTZ001
        timezones=st.just(UTC),
    ),
    st.times(),
    st.times(),
)
def test_first_allowed_is_within_the_hours_and_less_than_a_day_away(
    start: datetime, opens: time, closes: time
) -> None:
    if opens == closes:
        return
    found = first_allowed(start, opens, closes, SHANGHAI)
    assert timedelta() <= found - start <= timedelta(days=1)
    assert within(found.astimezone(SHANGHAI).time(), opens, closes)


@pytest.mark.parametrize(
    ("problems", "code", "words"),
    [
        (limits.rate_problems(0), "rate_range", "至少为每分钟 1 条"),
        (limits.rate_problems(-1), "rate_range", "至少为每分钟 1 条"),
        (limits.rate_problems(1 << 31), "number_too_large", "最多 2000000000"),
        (limits.hours_problems(time(9), None), "hours_half", "要么都填"),
        (limits.hours_problems(None, time(9)), "hours_half", "要么都填"),
        (limits.hours_problems(time(9), time(9)), "hours_empty", "不能相同"),
        (
            limits.hours_problems(time(9, tzinfo=UTC), time(18, tzinfo=UTC)),
            "hours_offset",
            "不要带时区",
        ),
        (limits.call_size_problems(0), "call_size_range", "1 到 50 的整数，现在是“0”"),
        (limits.call_size_problems(51), "call_size_range", "1 到 50"),
        (limits.attempts_problems(0), "max_attempts_range", "1 到 20"),
        (limits.attempts_problems(21), "max_attempts_range", "1 到 20"),
        (limits.priority_problems(101), "priority_range", "-100 到 100"),
        (limits.priority_problems(-101), "priority_range", "-100 到 100"),
        (
            limits.start_problems(NOW - timedelta(seconds=61), now=NOW),
            "start_past",
            "2026-05-01 11:58 已经过去",
        ),
        (limits.start_problems(NOW + timedelta(days=367), now=NOW), "start_far", "核对年份"),
    ],
)
def test_limit_out_of_range_says_what_is_possible(
    problems: list[Problem], code: str, words: str
) -> None:
    found, text = only(problems)
    assert found == code
    assert words in text


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"streak": 0}, "breaker_streak_range"),
        ({"streak": 1001}, "breaker_streak_range"),
        ({"ratio": 0.0}, "breaker_ratio_range"),
        ({"ratio": 1.01}, "breaker_ratio_range"),
        ({"ratio": float("nan")}, "breaker_ratio_range"),
        ({"window": 0}, "breaker_window_range"),
        ({"window": 100_001}, "breaker_window_range"),
        ({"min_sample": 0}, "breaker_sample_range"),
        ({"shard_share": 0.0}, "breaker_share_range"),
        ({"shard_share": 2.0}, "breaker_share_range"),
        ({"window": 49}, "breaker_sample_over_window"),
    ],
)
def test_thresholds_out_of_range_are_refused(change: dict[str, Any], code: str) -> None:
    assert only(limits.breaker_problems(Thresholds(**change)))[0] == code


@pytest.mark.parametrize(
    "problems",
    [
        limits.rate_problems(1),
        limits.rate_problems(None),
        limits.hours_problems(time(22), time(6)),
        limits.hours_problems(None, None),
        limits.call_size_problems(50),
        limits.attempts_problems(1),
        limits.priority_problems(-100),
        limits.start_problems(NOW - timedelta(seconds=59), now=NOW),
        limits.start_problems(None, now=NOW),
        limits.breaker_problems(Thresholds()),
        limits.breaker_problems(
            Thresholds(streak=1, ratio=1.0, window=1, min_sample=1, shard_share=1.0)
        ),
    ],
)
def test_limit_at_its_edge_is_fine(problems: list[Problem]) -> None:
    assert problems == []


def test_adjust_takes_a_lower_ratio_into_account_at_once() -> None:
    window = BreakerWindow(ratio=0.9, size=10, min_sample=4)
    assert not any(window.add(bad=bad) for bad in (True, False, True, False))
    window.adjust(ratio=0.4, size=10, min_sample=4)
    assert window.add(bad=True)


def test_adjust_to_a_smaller_window_keeps_the_latest_outcomes() -> None:
    window = BreakerWindow(ratio=1.0, size=10, min_sample=2)
    for bad in (True, True, True, False, False):
        window.add(bad=bad)
    window.adjust(ratio=1.0, size=3, min_sample=2)
    assert (window.sample, window.bad) == (3, 1)
    window.add(bad=False)
    assert (window.sample, window.bad) == (3, 0)
