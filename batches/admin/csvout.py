"""CSV downloads that a spreadsheet opens rightly, streamed row by row."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from django.http import StreamingHttpResponse
from django.utils.http import content_disposition_header

#: A spreadsheet takes a cell that begins so for a formula.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
#: From so many digits on a spreadsheet shows, and then saves, a rounded number.
_LONG_NUMBER = 12


def safe_cell(value: object) -> str:
    """A cell as plain text for a spreadsheet.

    What could be a formula gets an apostrophe in front, a long number a tab behind: both are
    taken off again when the file is uploaded (see `intake.cells`).
    """
    text = "" if value is None else str(value)
    if text.startswith(_FORMULA_STARTS):
        return f"'{text}"
    if len(text) >= _LONG_NUMBER and text.isascii() and text.isdigit():
        return f"{text}\t"
    return text


class _Line:
    """What `csv` writes to; it hands the line back."""

    def write(self, line: str) -> str:
        return line


def csv_response(
    name: str, header: Sequence[object], rows: Iterable[Sequence[object]]
) -> StreamingHttpResponse:
    """A download called `name`; rows are taken while they are sent."""
    writer = csv.writer(_Line())

    def lines() -> Iterator[bytes]:
        yield b"\xef\xbb\xbf"
        for row in chain([header], rows):
            yield writer.writerow(map(safe_cell, row)).encode()

    response = StreamingHttpResponse(lines(), content_type="text/csv; charset=utf-8")
    response.headers["Content-Disposition"] = content_disposition_header(True, name) or ""
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response
