"""A file as a table: what it is, its header, and the rows after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from batches.actions.base import ColumnSpec

from .decoding import TextKind, WorkbookKind, examine
from .header import Choice, Header, HeaderRefusedError, find_header, sniff_delimiter
from .source import Source
from .textrows import Row, text_rows
from .workbook import workbook_rows


@dataclass(frozen=True, slots=True)
class Table:
    """A file whose kind, separator and header are known."""

    source: Source
    kind: TextKind | WorkbookKind
    #: '' for a workbook
    delimiter: str
    header: Header

    def rows(self) -> Iterator[Row]:
        """(row number in the file, the header's row being counted too; cells as read).

        Raises FileRefusedError where the text cannot be cut into rows any further.
        """
        found = _all_rows(self.source, self.kind, self.delimiter)
        return ((number, cells) for number, cells in found if number > self.header.row)


def open_table(
    source: Source,
    specs: Sequence[ColumnSpec],
    *,
    encoding: str | None = None,
    choice: Choice | None = None,
) -> Table:
    """Find out what a file is. Raises FileRefusedError with what it is instead, and the cure."""
    kind = examine(source, encoding)
    delimiter = sniff_delimiter(source, kind, specs) if isinstance(kind, TextKind) else ""
    try:
        header = find_header(_all_rows(source, kind, delimiter), specs, choice)
    except HeaderRefusedError as error:
        error.encoding, error.delimiter = kind.encoding, delimiter
        raise
    return Table(source, kind, delimiter, header)


def _all_rows(source: Source, kind: TextKind | WorkbookKind, delimiter: str) -> Iterator[Row]:
    if isinstance(kind, TextKind):
        return text_rows(source, kind, delimiter)
    return workbook_rows(source)
