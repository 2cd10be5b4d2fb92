"""What a submission may ask for, checked before its file is looked at."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, time
from typing import Any

from django.utils import timezone

from batches.domain import limits
from batches.domain.breaker import Thresholds
from batches.domain.problems import Problem
from batches.domain.text import N_
from batches.models.jobs import BadRows, ConfirmPolicy

NAME_MAX = 200
CALL_SIZE = 1
ATTEMPTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What bounds a job, as given."""

    budget: int | None = None
    stages: tuple[int, ...] = ()
    rate: int | None = None
    policy: str = ConfirmPolicy.RESPONSE
    bad_rows: str = BadRows.REFUSE
    #: aware
    start_at: datetime | None = None
    window_from: time | None = None
    window_to: time | None = None
    call_size: int = CALL_SIZE
    max_attempts: int = ATTEMPTS
    priority: int = 0
    breaker: Thresholds = field(default_factory=Thresholds)

    def problems(self) -> list[Problem]:
        found = [
            *limits.budget_problems(self.budget),
            *limits.stages_problems(self.stages),
            *limits.rate_problems(self.rate),
            *limits.hours_problems(self.window_from, self.window_to),
            *limits.call_size_problems(self.call_size),
            *limits.attempts_problems(self.max_attempts),
            *limits.priority_problems(self.priority),
            *limits.breaker_problems(self.breaker),
        ]
        if self.policy != ConfirmPolicy.RESPONSE:
            found.append(
                Problem(
                    "confirm_policy_unsupported",
                    N_("暂不支持确认方式“%(policy)s”，请使用 response（以应答为准）。"),
                    {"policy": self.policy},
                )
            )
        if self.bad_rows not in BadRows.values:
            found.append(unknown_bad_rows(self.bad_rows))
        return found

    def start_problems(self) -> list[Problem]:
        """Apart: a submission that has its job already may come again after its start."""
        start = None if self.start_at is None else timezone.localtime(self.start_at)
        return limits.start_problems(start, now=timezone.now())

    def columns(self) -> dict[str, Any]:
        return {
            "budget_limit": self.budget,
            "stages": list(self.stages),
            "rate_limit_per_min": self.rate,
            "confirm_policy": self.policy,
            "bad_rows": self.bad_rows,
            "start_at": self.start_at,
            "window_from": self.window_from,
            "window_to": self.window_to,
            "call_size": self.call_size,
            "max_attempts": self.max_attempts,
            "priority": self.priority,
            **breaker_columns(self.breaker),
        }


def breaker_columns(at: Thresholds) -> dict[str, Any]:
    """The columns of a job that hold its thresholds."""
    return {
        "breaker_streak": at.streak,
        "breaker_ratio": at.ratio,
        "breaker_window": at.window,
        "breaker_min_sample": at.min_sample,
        "breaker_shard_share": at.shard_share,
    }


def unknown_bad_rows(value: str) -> Problem:
    return Problem(
        "bad_rows_unknown",
        N_("问题行的处理方式只能是 refuse（整个拒绝）或 skip（跳过），不能是“%(value)s”。"),
        {"value": value},
    )


def name_problems(name: str) -> list[Problem]:
    if len(name) <= NAME_MAX:
        return []
    return [
        Problem(
            "name_too_long",
            N_("作业名称最多 %(most)s 字，现在是 %(count)s 字。"),
            {"most": NAME_MAX, "count": len(name)},
        )
    ]
