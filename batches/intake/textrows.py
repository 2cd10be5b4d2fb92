"""Rows of a delimited text file, numbered by record, whatever its line ends and quotes."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from batches.domain.problems import Problem
from batches.domain.text import N_

from .decoding import UTF16_BE, UTF16_LE, TextKind
from .source import ChunkReader, FileRefusedError, Source

DELIMITERS = (",", "\t", ";")
#: No message is anywhere near as long; an unclosed quote meets this bound soon.
CELL_MAX_CHARS = 256 * 1024
_BUFFER_BYTES = 256 * 1024

Row = tuple[int, list[str]]


def text_rows(source: Source, kind: TextKind, delimiter: str) -> Iterator[Row]:
    """(record number from 1, cells), blank records left out but counted.

    Line ends may be CRLF, LF or CR. Raises FileRefusedError where quotes do not pair up or a
    cell is absurdly long: rows read past such a place would be somebody else's.
    """
    if csv.field_size_limit() < CELL_MAX_CHARS:
        csv.field_size_limit(CELL_MAX_CHARS)
    reader = csv.reader(_lines(source, kind), delimiter=delimiter, strict=True)
    number = line = 0
    try:
        for number, cells in enumerate(reader, 1):
            if cells:
                yield number, cells
            line = reader.line_num
    except csv.Error as error:
        raise FileRefusedError(_csv_problem(str(error), number + 1, line + 1)) from error


def _lines(source: Source, kind: TextKind) -> Iterator[str]:
    """Lines with their ends; the encoding was checked over the whole file beforehand."""
    raw = io.BufferedReader(ChunkReader(source.open(), kind.bom), _BUFFER_BYTES)
    text = io.TextIOWrapper(raw, encoding=kind.encoding, errors="strict", newline="")
    if kind.encoding in (UTF16_LE, UTF16_BE):
        # the database stores no U+0000; the other encodings were refused for it as binary
        return (line.replace("\0", "") for line in text)
    return text


def _csv_problem(error: str, number: int, line: int) -> Problem:
    values = {"row": number, "line": line}
    if "field limit" in error:
        return Problem(
            "csv_cell_too_long",
            N_(
                "第 %(row)s 行（文件第 %(line)s 行起）有一个单元格过长，多半是引号没有成对。"
                "请检查该行的引号后重新上传。"
            ),
            values,
        )
    if "unexpected end" in error:
        return Problem(
            "csv_quote_open",
            N_(
                "第 %(row)s 行（文件第 %(line)s 行起）的引号没有结束，直到文件末尾。"
                "请补上引号，或在 Excel 中另存为 CSV 后重新上传。"
            ),
            values,
        )
    return Problem(
        "csv_quote_stray",
        N_(
            "第 %(row)s 行（文件第 %(line)s 行起）的引号后面还有文字，无法确定单元格的边界。"
            '单元格内的引号要写成两个（""）。请改正该行，或在 Excel 中另存为 CSV 后重新上传。'
        ),
        values,
    )
