"""What a submission may ask for, checked before its file is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from batches.domain.problems import Problem
from batches.domain.text import N_
from batches.models.jobs import BadRows, ConfirmPolicy

NUMBER_MAX = 2_000_000_000
NAME_MAX = 200


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a job, as given."""

    budget: int | None
    stages: tuple[int, ...]
    rate: int | None
    policy: str
    bad_rows: str

    def problems(self) -> list[Problem]:
        found: list[Problem] = []
        if self.budget is not None and not 1 <= self.budget <= NUMBER_MAX:
            found.append(
                Problem(
                    "budget_range",
                    N_("预算必须是 1 到 %(most)s 的整数；不限预算请留空。"),
                    {"most": NUMBER_MAX},
                )
            )
        rising = all(a < b for a, b in zip((0, *self.stages), self.stages, strict=False))
        if not rising or any(stage > NUMBER_MAX for stage in self.stages):
            found.append(
                Problem(
                    "stages_order",
                    N_("放量检查点必须是从小到大的正整数，例如 50,500；现在是 %(stages)s。"),
                    {"stages": ",".join(map(str, self.stages))},
                )
            )
        if self.rate is not None and not 1 <= self.rate <= NUMBER_MAX:
            found.append(
                Problem("rate_range", N_("作业速率上限至少为每分钟 1 条；不限速率请留空。"))
            )
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

    def identity(self) -> dict[str, Any]:
        """What makes it another submission; how bad rows are treated does not."""
        return {
            "budget": self.budget,
            "stages": self.stages,
            "rate": self.rate,
            "policy": self.policy,
        }

    def columns(self) -> dict[str, Any]:
        return {
            "budget_limit": self.budget,
            "stages": list(self.stages),
            "rate_limit_per_min": self.rate,
            "confirm_policy": self.policy,
            "bad_rows": self.bad_rows,
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
