"""One row of a file: an item to be, or a rejection with the reason and the cure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batches.actions.base import Action, ColumnSpec, Compiled
from batches.domain.columns import ACCOUNT, TARGET, canonical_key, normal_header
from batches.domain.problems import Problem
from batches.domain.text import N_

from .cells import EDGES, clean_id, clean_row, join_cells
from .directory import AccountDirectory, KnownAccount
from .header import Header


@dataclass(frozen=True, slots=True)
class GoodRow:
    """A row that can become an item, unless an earlier one has the same target."""

    account: KnownAccount
    target: str
    cells: list[str]
    #: the cells as one text
    joined: str


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot, its first fault, and the cells as they were read."""

    problem: Problem
    column: str
    value: str
    cells: list[str]


class RowChecker:
    """Checks the rows of one file for one action."""

    def __init__(
        self, *, action: Action, compiled: Compiled, header: Header, directory: AccountDirectory
    ) -> None:
        self._action = action
        self._compiled = compiled
        self._directory = directory
        self._columns = header.columns
        self._width = len(header.columns)
        self._mapping = header.mapping
        self._account = header.mapping[ACCOUNT]
        self._target = header.mapping[TARGET]
        self._target_spec = next(spec for spec in action.columns if spec.key == TARGET)
        self._others: list[tuple[int, ColumnSpec]] = [
            (header.mapping[spec.key], spec)
            for spec in action.columns
            if spec.key in header.mapping and spec.key not in (ACCOUNT, TARGET)
        ]

    def check(self, row: list[str]) -> GoodRow | BadRow | None:
        """None for a row with nothing in it. Of several faults the first found is given:

        shifted cells, account, target, the action's other columns, then what it makes of them.
        """
        width = self._width
        cells = clean_row(row)
        if not any(cells):
            return None
        if len(cells) > width:
            extra = next((cell for cell in cells[width:] if cell), None)
            if extra is not None:
                return self._bad(_too_many(len(row), width), None, extra, row)
            del cells[width:]
        elif len(cells) < width:
            cells += [""] * (width - len(cells))
        account = self._directory.find(cells[self._account])
        if isinstance(account, Problem):
            return self._bad(account, self._account, cells[self._account], row)
        target = cells[self._target] = clean_id(cells[self._target])
        problem = self._target_spec.check(target) or self._action.check_target(
            target, gateway_kind=account.gateway_kind
        )
        if problem:
            return self._bad(problem, self._target, target, row)
        cells[self._account] = clean_id(cells[self._account])
        for index, spec in self._others:
            if problem := spec.check(cells[index]):
                return self._bad(problem, index, cells[index], row)
        cells, joined = join_cells(cells)
        for problem in self._compiled.check_row(target, cells):
            return self._bad(problem, self._column_of(problem), "", row)
        return GoodRow(account, target, cells, joined)

    def _bad(self, problem: Problem, index: int | None, value: str, row: Sequence[str]) -> BadRow:
        column = "" if index is None else self._columns[index]
        return BadRow(problem, column, value.strip(EDGES), list(row))

    def _column_of(self, problem: Problem) -> int | None:
        """The column that a fault of the message names, where it names one."""
        name = problem.params.get("name")
        if not isinstance(name, str):
            return None
        named = [i for i, header in enumerate(self._columns) if normal_header(header) == name]
        if len(named) == 1:
            return named[0]
        # a placeholder may go by another of its column's names
        return self._mapping.get(canonical_key(name) or "")


def _too_many(found: int, expected: int) -> Problem:
    return Problem(
        "row_too_many_cells",
        N_(
            "这一行有 %(found)s 格，比表头的 %(expected)s 列多，内容可能错位。"
            "含逗号的内容要放在引号里；请改正该行。"
        ),
        {"found": found, "expected": expected},
    )
