"""File rows that did not become items, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from batches.domain.problems import Problem
from batches.intake.report import problem_from_json
from batches.models import Job, Rejection

SHOWN = 10
_CHUNK = 1000


@dataclass(frozen=True, slots=True)
class BadRow:
    """One row, the cell at fault and the cure."""

    row_no: int
    column: str
    value: str
    problem: Problem
    fields: list[str]


def _bad_row(rejection: Rejection) -> BadRow:
    told = {"code": rejection.code, "text": rejection.text, "params": rejection.params}
    return BadRow(
        rejection.row_no,
        rejection.column,
        rejection.value,
        problem_from_json(told),
        [str(cell) for cell in rejection.fields],
    )


def first_rejections(job: Job) -> list[BadRow]:
    """As many as a page shows, in file order."""
    found = Rejection.objects.filter(job=job).order_by("row_no", "id")[:SHOWN]
    return [_bad_row(rejection) for rejection in found]


def all_rejections(job: Job) -> Iterator[BadRow]:
    """Every one in file order, in pages by keyset: no long transaction, little memory."""
    after = (0, 0)
    while True:
        found = Rejection.objects.filter(job=job, row_no__gte=after[0]).exclude(
            row_no=after[0], id__lte=after[1]
        )
        chunk = list(found.order_by("row_no", "id")[:_CHUNK])
        if not chunk:
            return
        yield from map(_bad_row, chunk)
        after = (chunk[-1].row_no, chunk[-1].pk)
