"""Rows of the first sheet of an .xlsx workbook, as text."""

from __future__ import annotations

import datetime as dt
import io
import math
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import Final

from python_calamine import (
    CalamineError,
    CalamineSheet,
    CalamineWorkbook,
    SheetTypeEnum,
    SheetVisibleEnum,
)

from batches.domain.problems import Problem
from batches.domain.text import N_

from .source import FileRefusedError, Source
from .textrows import Row

#: A workbook is read whole, unlike text: its size is bounded so that memory is.
WORKBOOK_MAX_BYTES: Final = 30 * 1024 * 1024
UNPACKED_MAX_BYTES: Final = 100 * 1024 * 1024
#: from the first cell to the farthest, empty ones too: the reader holds each of them
CELLS_MAX: Final = 6_000_000
#: what the library raises for parts that are damaged or cut off, encrypted or packed oddly
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError)
_REFERENCE = re.compile(rb'\br="([A-Z]{1,3})([0-9]{1,7})"')
_EXACT = 10**15


def workbook_rows(source: Source) -> Iterator[Row]:
    """(spreadsheet row number, cells as text), wholly empty rows left out.

    Numbers of up to 15 digits come without a fraction that is not there; longer ones come in
    E+ notation, for the spreadsheet has already lost their last digits.
    """
    sheet = _first_sheet(_read(source))
    # the rows above the first cell are given, the columns before it are not
    padding = [""] * (sheet.start or (0, 0))[1]
    for number, values in enumerate(sheet.iter_rows(), 1):
        cells = [_text(value) for value in values]
        if any(cells):
            yield number, padding + cells


def _read(source: Source) -> bytes:
    buffer = bytearray()
    for chunk in source.open():
        buffer += chunk
        if len(buffer) > WORKBOOK_MAX_BYTES:
            raise FileRefusedError(_too_large())
    data = bytes(buffer)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            _check_parts(archive.infolist())
            _check_extent(archive)
    except _BROKEN as error:
        raise FileRefusedError(_unreadable()) from error
    return data


def _check_parts(parts: Sequence[zipfile.ZipInfo]) -> None:
    """It is a workbook at all, and not too large when unpacked."""
    if not any(part.filename.startswith("xl/") for part in parts):
        raise FileRefusedError(
            Problem(
                "file_not_csv",
                N_("这不是 CSV 文件，看起来是 %(kind)s 文件。请上传 CSV 或 .xlsx 文件。"),
                {"kind": "ZIP"},
            )
        )
    if sum(part.file_size for part in parts) > UNPACKED_MAX_BYTES:
        raise FileRefusedError(_too_large())


def _check_extent(archive: zipfile.ZipFile) -> None:
    """Refuse a sheet whose far cells span too much: the reader makes room for all between."""
    for part in archive.infolist():
        if not part.filename.startswith("xl/worksheets/"):
            continue
        rows = columns = 0
        with archive.open(part) as sheet:
            rest = b""
            while block := sheet.read(1 << 20):
                # a reference cut in two is whole with the next block
                for letters, number in _REFERENCE.findall(rest + block):
                    rows = max(rows, int(number))
                    columns = max(columns, _column_number(letters))
                rest = block[-32:]
        if rows * columns > CELLS_MAX:
            raise FileRefusedError(
                Problem(
                    "workbook_too_sparse",
                    N_(
                        "工作表一直延伸到第 %(rows)s 行第 %(columns)s 列，格子太多。"
                        "多半是很远的地方有一个多余的单元格（Ctrl+End 会跳到那里）。"
                        "请删除名单以外的行和列，或另存为 CSV 后重新上传。"
                    ),
                    {"rows": rows, "columns": columns},
                )
            )


def _column_number(letters: bytes) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + letter - 64
    return number


def _first_sheet(data: bytes) -> CalamineSheet:
    try:
        book = CalamineWorkbook.from_filelike(io.BytesIO(data))
        for meta in book.sheets_metadata:
            if meta.typ == SheetTypeEnum.WorkSheet and meta.visible == SheetVisibleEnum.Visible:
                sheet = book.get_sheet_by_name(meta.name)
                if sheet.height:
                    return sheet
    except CalamineError as error:
        raise FileRefusedError(_unreadable()) from error
    raise FileRefusedError(
        Problem(
            "workbook_empty", N_("工作簿里没有可见的、有内容的工作表。请把名单放进第一个工作表。")
        )
    )


def _text(value: object) -> str:
    """A cell as a person sees it."""
    if isinstance(value, str):
        # a workbook can hold it as `_x0000_`; the database cannot
        return value.replace("\0", "") if "\0" in value else value
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float):
        if math.isnan(value) or abs(value) >= _EXACT:
            return f"{value:.5E}"
        return str(int(value)) if value == int(value) else repr(value)
    if isinstance(value, dt.datetime):
        return value.isoformat(" ", "seconds").removesuffix(" 00:00:00")
    return str(value)


def _too_large() -> Problem:
    return Problem(
        "workbook_too_large",
        N_(
            "工作簿太大（压缩后最多 %(packed)s MB，展开后最多 %(unpacked)s MB）。"
            "请在 Excel 中另存为“CSV UTF-8（逗号分隔）”后重新上传，CSV 可以大得多。"
        ),
        {
            "packed": WORKBOOK_MAX_BYTES // 1024 // 1024,
            "unpacked": UNPACKED_MAX_BYTES // 1024 // 1024,
        },
    )


def _unreadable() -> Problem:
    return Problem(
        "workbook_unreadable",
        N_("工作簿打不开：文件已损坏或有密码。请在 Excel 中去掉密码并另存为 .xlsx 后重新上传。"),
    )
