"""Where the header is, and which column means what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from batches.actions.base import ColumnSpec
from batches.domain.columns import folded_header, normal_header
from batches.domain.problems import Names, Problem, Term
from batches.domain.text import N_

from .decoding import TextKind
from .source import FileRefusedError, Source
from .textrows import DELIMITERS, Row, text_rows

#: A title or a note may stand above the header, but not more than this many rows.
HEADER_WITHIN_ROWS = 10
#: no list is anywhere near as wide; every page would show them all
COLUMNS_MAX = 1_000
_SHOWN_COLUMNS = 30

#: canonical key → header text, or index of the column (from 0)
Choice = Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class Header:
    """The header row of a file."""

    row: int
    columns: tuple[str, ...]
    mapping: Mapping[str, int]


class HeaderRefusedError(FileRefusedError):
    """No row names every required column.

    `header` is the row that comes nearest, so that a person can say which column is which;
    `encoding` and `delimiter` are how the file was read.
    """

    encoding = ""
    delimiter = ""

    def __init__(self, header: Header, *problems: Problem) -> None:
        super().__init__(*problems)
        self.header = header


def sniff_delimiter(source: Source, kind: TextKind, specs: Sequence[ColumnSpec]) -> str:
    """The separator by which the header is understood best; a comma where none is better."""

    def score(delimiter: str) -> tuple[int, int]:
        rows = _first_rows(text_rows(source, kind, delimiter))
        return max((_score(cells, specs) for _, cells in rows), default=(0, 0))

    return max(DELIMITERS, key=score)


def find_header(
    rows: Iterable[Row], specs: Sequence[ColumnSpec], choice: Choice | None = None
) -> Header:
    """The first row that names every required column, among the first ten.

    `choice` replaces what the headers say. Raises HeaderRefusedError naming the columns found
    and those expected.
    """
    first = _first_rows(rows, needed=True)
    if (widest := max((len(cells) for _, cells in first), default=0)) > COLUMNS_MAX:
        raise FileRefusedError(
            Problem(
                "file_too_wide",
                N_("文件有 %(count)s 列，最多 %(most)s 列。请确认分隔符没有弄错，并删除多余的列。"),
                {"count": widest, "most": COLUMNS_MAX},
            )
        )
    candidates = [(number, trimmed) for number, cells in first if (trimmed := _trim(cells))]
    if not candidates:
        raise FileRefusedError(
            Problem("file_blank", N_("文件里只有空行。请确认选对了文件，并且其中有表头和数据。"))
        )
    required = {spec.key for spec in specs if spec.required}
    wanted = {normal_header(str(name)) for name in (choice or {}).values()}
    best: tuple[tuple[int, int, int], Header, list[Problem]] | None = None
    for number, cells in candidates:
        mapping, problems = _map(cells, specs, choice or {})
        if not problems and required <= mapping.keys():
            return Header(number, tuple(cells), mapping)
        named = len(wanted & set(map(normal_header, cells)))
        rank = (named, *_score(cells, specs))
        if best is None or rank > best[0]:
            best = (rank, Header(number, tuple(cells), mapping), problems)
    assert best is not None
    _, header, problems = best
    raise HeaderRefusedError(header, *(problems or _missing(header, specs)))


def _first_rows(rows: Iterable[Row], *, needed: bool = False) -> list[Row]:
    """As many of the first rows as can be read; the faults show when the file is read in full.

    With `needed`, a file of which no row can be read is refused for its own fault.
    """
    found: list[Row] = []
    try:
        for row in islice(rows, HEADER_WITHIN_ROWS):
            found.append(row)  # noqa: PERF402 - what came before a failure is kept
    except FileRefusedError:
        if needed and not found:
            raise
    return found


def _trim(cells: Sequence[str]) -> list[str]:
    """Cleaned header cells without the empty ones at the end."""
    names = [normal_header(cell) for cell in cells]
    while names and not names[-1]:
        names.pop()
    return names


def _score(cells: Sequence[str], specs: Sequence[ColumnSpec]) -> tuple[int, int]:
    """How well a row reads as a header: columns understood, then columns at all."""
    names = _trim(cells[:COLUMNS_MAX])
    known = sum(any(spec.matches(name) for name in names if name) for spec in specs)
    return known, sum(any(map(str.isalnum, name)) for name in names)


def _map(
    names: Sequence[str], specs: Sequence[ColumnSpec], choice: Choice
) -> tuple[dict[str, int], list[Problem]]:
    mapping: dict[str, int] = {}
    problems: list[Problem] = []
    for spec in specs:
        chosen = choice.get(spec.key)
        found = _matching(names, spec) if chosen is None else _chosen(names, chosen)
        if len(found) > 1 and spec.required:
            problems.append(
                Problem(
                    "column_ambiguous",
                    N_(
                        "有 %(count)s 列的表头都是“%(header)s”，无法确定哪一列是“%(label)s”。"
                        "请改成不同的列名，或指定对应的列。"
                    ),
                    {"count": len(found), "header": names[found[0]], "label": Term(spec.label)},
                )
            )
        elif found:
            mapping[spec.key] = found[0]
        elif chosen is not None:
            problems.append(
                Problem(
                    "column_choice_unknown",
                    N_("指定给“%(label)s”的列“%(choice)s”不存在。找到的列：%(columns)s。"),
                    {
                        "label": Term(spec.label),
                        "choice": chosen + 1 if isinstance(chosen, int) else chosen,
                        "columns": _shown(names),
                    },
                )
            )
    return mapping, problems


def _matching(names: Sequence[str], spec: ColumnSpec) -> list[int]:
    """Columns that mean `spec`: those of its most telling alias that occurs at all."""
    folded = [folded_header(name) for name in names]
    for alias in map(folded_header, spec.aliases):
        if alias in folded:
            return [index for index, name in enumerate(folded) if name == alias]
    return []


def _chosen(names: Sequence[str], choice: str | int) -> list[int]:
    if isinstance(choice, int):
        return [choice] if 0 <= choice < len(names) else []
    wanted = normal_header(choice)
    return [index for index, name in enumerate(names) if name == wanted]


def _missing(header: Header, specs: Sequence[ColumnSpec]) -> list[Problem]:
    if len(header.columns) == 1 and "," in header.columns[0]:  # widths are folded by now
        return [
            Problem(
                "header_wide_comma",
                N_("表头用了全角逗号“，”分隔（%(header)s）。请改成半角逗号 , 后重新上传。"),
                {"header": header.columns[0][:200]},
            )
        ]
    return [
        Problem(
            "column_missing",
            N_(
                "找不到“%(label)s”列。找到的列：%(columns)s。"
                "这一列的表头可以是：%(aliases)s。请改正表头后重新上传，或指定对应的列。"
            ),
            {
                "label": Term(spec.label),
                "columns": _shown(header.columns),
                "aliases": Names(spec.aliases),
            },
        )
        for spec in specs
        if spec.required and spec.key not in header.mapping
    ]


def _shown(names: Sequence[str]) -> Names:
    named = [name[:40] for name in names if name]
    if len(named) > _SHOWN_COLUMNS:
        named = [*named[: _SHOWN_COLUMNS - 1], f"{named[_SHOWN_COLUMNS - 1]}…"]
    return Names(named)
