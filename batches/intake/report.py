"""What intake found, as JSON for `Job.intake`, and problems as JSON and back.

The report: `phase` (waiting, reading, loading, done), `progress_rows`, `encoding`, `delimiter`,
`header_row`, `columns`, `mapping`, `rows`, `items`, `valid` (good rows, also of a refused file),
`rejected` (bad rows), `by_reason` [{code, text, params, count, example_row, varying}], `samples`
[{row_no, account, account_name, target, content, tags}], `accounts` [{account, name, items,
shards}] (largest first, at most 200), `accounts_total`, `shards`, `problem` and `problems` (why
the file as a whole was refused), `warnings`, `duration_s`, and `request`: what the operator
asked for (encoding, mapping).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from batches.actions.base import Compiled
from batches.domain.errors import InvalidInputError
from batches.domain.problems import Names, Problem, Term

from .checking import BadRow, GoodRow
from .header import Header

Json = dict[str, Any]
ACCOUNTS_MAX = 200
SAMPLES_MAX = 5


def problem_to_json(problem: Problem) -> Json:
    """A problem with its parameters; terms and nested problems stay translatable."""
    return {
        "code": problem.code,
        "text": problem.text,
        "params": {name: _value_to_json(value) for name, value in problem.params.items()},
    }


def problem_from_json(data: Mapping[str, Any]) -> Problem:
    """The problem again (also of a `Rejection`'s code, text and params)."""
    params = {name: _value_from_json(value) for name, value in data["params"].items()}
    return Problem(data["code"], data["text"], params)


def reason_from_json(entry: Mapping[str, Any]) -> Problem:
    """What the rows of one reason have in common: a value of one of them blames no other."""
    problem = problem_from_json(entry)
    left_out = dict.fromkeys(entry.get("varying", ()), "…")
    return Problem(problem.code, problem.text, {**problem.params, **left_out})


def example_of(entry: Mapping[str, Any]) -> str:
    """The value in the example's row, where the rows of the reason differ in it."""
    return str(entry["params"]["value"]) if "value" in entry.get("varying", ()) else ""


def _value_to_json(value: object) -> object:
    if isinstance(value, Problem):
        return {"problem": problem_to_json(value)}
    if isinstance(value, Term):
        return {"term": str(value)}
    if isinstance(value, Names):
        return {"names": list(value.words)}
    return value if isinstance(value, int | float) else str(value)


def _value_from_json(value: object) -> object:
    if isinstance(value, dict):
        if "names" in value:
            return Names(value["names"])
        return problem_from_json(value["problem"]) if "problem" in value else Term(value["term"])
    return value


def problems_of(error: InvalidInputError) -> list[Problem]:
    """The problems of a refusal; a bare sentence becomes one."""
    return [
        problem
        if isinstance(problem, Problem)
        else Problem("invalid", "%(text)s", {"text": problem})
        for problem in error.problems
    ]


@dataclass(slots=True)
class Reason:
    """How often one kind of fault occurred, and the first time."""

    problem: Problem
    example_row: int
    count: int = 0
    #: names of the values in which its rows differ
    varying: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Findings:
    """Collected while the rows go by."""

    rows: int = 0
    bad: int = 0
    reasons: dict[str, Reason] = field(default_factory=dict)
    samples: list[Json] = field(default_factory=list)
    _sampled: set[tuple[int, str]] = field(default_factory=set)
    #: long numeric ids, and how many of them end in 0: a spreadsheet keeps 15 digits
    long_ids: int = 0
    rounded_ids: int = 0

    def add_bad(self, number: int, bad: BadRow) -> None:
        self.rows += 1
        self.bad += 1
        self.count(bad.problem, number, 1)

    def count(self, problem: Problem, number: int, times: int) -> None:
        reason = self.reasons.get(problem.code)
        if reason is None:
            reason = self.reasons[problem.code] = Reason(problem, number)
        reason.count += times
        if problem is not reason.problem:
            reason.varying.update(
                name
                for name, value in problem.params.items()
                if value != reason.problem.params.get(name)
            )
        if times > 1:  # one stands for many, which nobody has compared
            reason.varying.update(problem.params)

    def add_good(self, number: int, good: GoodRow, compiled: Compiled) -> None:
        self.rows += 1
        target = good.target
        if len(target) > 15 and target.isdecimal():
            self.long_ids += 1
            self.rounded_ids += target[-1] == "0"
        if len(self.samples) < SAMPLES_MAX:
            self._sample(number, good, compiled)

    def _sample(self, number: int, good: GoodRow, compiled: Compiled) -> None:
        key = (good.account.id, good.target)
        if key in self._sampled:
            return
        self._sampled.add(key)
        made = compiled.to_target(good.target, good.cells)
        self.samples.append(
            {
                "row_no": number,
                "account": good.account.guid,
                "account_name": good.account.name,
                "target": good.target,
                "content": made.content,
                "tags": list(made.tags or made.remove_tags),
            }
        )

    def by_reason(self) -> list[Json]:
        """Most frequent first."""
        reasons = sorted(self.reasons.values(), key=lambda r: (-r.count, r.example_row))
        return [
            problem_to_json(reason.problem)
            | {
                "count": reason.count,
                "example_row": reason.example_row,
                "varying": sorted(reason.varying),
            }
            for reason in reasons
        ]


def empty_report(request: Json) -> Json:
    """The report before anything was read."""
    return {
        "phase": "waiting",
        "progress_rows": 0,
        "encoding": "",
        "delimiter": "",
        "header_row": None,
        "columns": [],
        "mapping": {},
        "rows": 0,
        "items": 0,
        "valid": 0,
        "rejected": 0,
        "by_reason": [],
        "samples": [],
        "accounts": [],
        "accounts_total": 0,
        "shards": 0,
        "problem": None,
        "problems": [],
        "warnings": [],
        "duration_s": None,
        "request": request,
    }


def header_report(header: Header) -> Json:
    """The part that the header gives."""
    return {
        "header_row": header.row,
        "columns": list(header.columns),
        "mapping": dict(header.mapping),
    }
