"""What kind of file this is, and in which encoding its text is written."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from batches.domain.problems import Names, Problem
from batches.domain.text import N_

from .source import FileRefusedError, Source

UTF8, UTF16_LE, UTF16_BE, GB18030 = "utf-8", "utf-16-le", "utf-16-be", "gb18030"
ENCODINGS: Final = (UTF8, GB18030, UTF16_LE, UTF16_BE)
_ALIASES: Mapping[str, str] = {
    "utf8": UTF8, "utf8sig": UTF8,
    "gb18030": GB18030, "gbk": GB18030, "gb2312": GB18030, "cp936": GB18030,
    "utf16": UTF16_LE, "utf16le": UTF16_LE, "utf16be": UTF16_BE,
}  # fmt: skip
_BOMS = (
    (codecs.BOM_UTF8, UTF8),
    (codecs.BOM_UTF16_LE, UTF16_LE),
    (codecs.BOM_UTF16_BE, UTF16_BE),
)
_MAGIC = (
    (b"%PDF-", "PDF"),
    (b"\x89PNG", "PNG"),
    (b"\xff\xd8\xff", "JPEG"),
    (b"GIF8", "GIF"),
    (b"\x1f\x8b", "GZIP"),
    (b"Rar!", "RAR"),
    (b"7z\xbc\xaf\x27\x1c", "7Z"),
    (b"SQLite format 3", "SQLite"),
)
_ZIP, _OLE = b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_HEAD_BYTES = 4096
#: A single line longer than this is no list of customers; it also bounds the memory of a line.
LINE_MAX_BYTES = 1024 * 1024
#: After this many three-byte characters read well, a fault is a fault and not another encoding:
#: GB18030 text looks like two-byte UTF-8 by chance, hardly ever like three-byte UTF-8.
_SURELY_UTF8 = 20


@dataclass(frozen=True, slots=True)
class TextKind:
    """A text file: its encoding, and the bytes of the mark before the text."""

    encoding: str
    bom: int = 0
    #: valid in two encodings; the operator should look at the preview
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class WorkbookKind:
    """An .xlsx workbook."""

    encoding: str = "xlsx"


@dataclass(frozen=True, slots=True)
class _Fault:
    """Where decoding failed: byte offset, line (from 1), and what was read well before."""

    offset: int
    line: int
    three_byte: int


def encoding_named(name: str) -> str:
    """The canonical name of an encoding that an operator may choose.

    Raises FileRefusedError for one that is not offered.
    """
    found = _ALIASES.get(name.strip().lower().replace("-", "").replace("_", ""))
    if found is None:
        raise FileRefusedError(
            Problem(
                "encoding_unknown",
                N_("不支持的编码“%(encoding)s”。可选：%(choices)s。"),
                {"encoding": name, "choices": Names(ENCODINGS)},
            )
        )
    return found


def examine(source: Source, override: str | None = None) -> TextKind | WorkbookKind:
    """Decide over the whole file what it is.

    A mark (BOM) decides, else strict UTF-8, else GB18030; `override` replaces the guess.
    Raises FileRefusedError for an empty file, one that is no text, or text in none of these.
    """
    head = _head(source)
    if not head:
        raise FileRefusedError(file_empty())
    if head.startswith(_ZIP):
        return WorkbookKind()
    _refuse_other_formats(head)
    marked, bom = next(
        ((name, len(mark)) for mark, name in _BOMS if head.startswith(mark)), (None, 0)
    )
    if override:
        encoding = encoding_named(override)
        fault = _first_fault(source, encoding, bom if marked == encoding else 0)
        if fault:
            raise FileRefusedError(_wrong_override(encoding, fault))
        return TextKind(encoding, bom if marked == encoding else 0)
    if marked:
        fault = _first_fault(source, marked, bom)
        if fault:
            raise FileRefusedError(_damaged(marked, fault))
        return TextKind(marked, bom)
    utf8 = _Scan(UTF8)
    fault = utf8.run(source)
    if fault is None:
        return TextKind(UTF8, doubtful=utf8.two_byte > 0 and utf8.three_byte == 0)
    if fault.three_byte >= _SURELY_UTF8:
        raise FileRefusedError(_damaged(UTF8, fault))
    other = _first_fault(source, GB18030, 0)
    if other:
        raise FileRefusedError(
            Problem(
                "encoding_neither",
                N_(
                    "无法识别文件的编码：按 UTF-8 读，第 %(utf8_line)s 行（第 %(utf8_byte)s 字节）"
                    "出错；按 GB18030 读，第 %(gb_line)s 行（第 %(gb_byte)s 字节）出错。"
                    "请在 Excel 中另存为“CSV UTF-8（逗号分隔）”后重新上传。"
                ),
                {
                    "utf8_line": fault.line,
                    "utf8_byte": fault.offset + 1,
                    "gb_line": other.line,
                    "gb_byte": other.offset + 1,
                },
            )
        )
    return TextKind(GB18030)


def file_empty() -> Problem:
    """There is nothing in the file."""
    return Problem("file_empty", N_("文件是空的。请确认选对了文件，并且其中有表头和数据。"))


def _head(source: Source) -> bytes:
    head = b""
    for chunk in source.open():
        head += chunk[:_HEAD_BYTES]
        if len(head) >= _HEAD_BYTES:
            break
    return head


def _refuse_other_formats(head: bytes) -> None:
    if head.startswith(_OLE):
        raise FileRefusedError(
            Problem(
                "file_old_excel",
                N_(
                    "这是旧版 Excel 文件（.xls），或者有密码的工作簿，读不了。"
                    "请在 Excel 中去掉密码，另存为 .xlsx 或“CSV UTF-8（逗号分隔）”后重新上传。"
                ),
            )
        )
    kind = next((label for magic, label in _MAGIC if head.startswith(magic)), "")
    if not kind and head.lstrip(b"\xef\xbb\xbf \t\r\n")[:9].lower().startswith(
        (b"<!doctype", b"<html", b"<table", b"<?xml")
    ):
        kind = "HTML/XML"
    if kind:
        raise FileRefusedError(
            Problem(
                "file_not_csv",
                N_("这不是 CSV 文件，看起来是 %(kind)s 文件。请上传 CSV 或 .xlsx 文件。"),
                {"kind": kind},
            )
        )


class _Scan:
    """One strict pass over the bytes: the first fault, and what the text is made of."""

    def __init__(self, encoding: str, skip: int = 0) -> None:
        self.encoding = encoding
        self.skip = skip
        self.two_byte = 0
        self.three_byte = 0

    def run(self, source: Source) -> _Fault | None:
        decoder = codecs.getincrementaldecoder(self.encoding)("strict")
        wide = self.encoding in (UTF16_LE, UTF16_BE)
        offset = feeds = returns = line_start = 0
        skip = self.skip
        for piece in source.open():
            chunk, skip = piece[skip:], max(0, skip - len(piece))
            if not wide and b"\0" in chunk:
                raise FileRefusedError(_binary(offset + chunk.index(b"\0")))
            pending = len(decoder.getstate()[0])
            try:
                text = decoder.decode(chunk)
            except UnicodeDecodeError as error:
                good = bytes(error.object[: error.start])
                self._count(good)
                at = self.skip + offset - pending + error.start
                lines = max(feeds + good.count(b"\n"), returns + good.count(b"\r"))
                return _Fault(at, lines + 1, self.three_byte)
            self._count(chunk)
            last = max(chunk.rfind(b"\n"), chunk.rfind(b"\r"))
            if last >= 0:
                line_start = offset + last
            offset += len(chunk)
            if offset - line_start > LINE_MAX_BYTES:
                raise FileRefusedError(_line_too_long(max(feeds, returns) + 1))
            feeds += text.count("\n")
            returns += text.count("\r")
        try:
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            at = self.skip + offset - len(error.object) + error.start
            return _Fault(at, max(feeds, returns) + 1, self.three_byte)
        return None

    def _count(self, data: bytes) -> None:
        """Lead bytes of UTF-8 sequences; only asked until the answer is plain."""
        if self.encoding == UTF8 and self.three_byte < _SURELY_UTF8 and not data.isascii():
            self.two_byte += len(data.translate(None, _NOT_TWO_BYTE_LEADS))
            self.three_byte += len(data.translate(None, _NOT_THREE_BYTE_LEADS))


_NOT_TWO_BYTE_LEADS = bytes(b for b in range(256) if not 0xC2 <= b <= 0xDF)
_NOT_THREE_BYTE_LEADS = bytes(b for b in range(256) if not 0xE0 <= b <= 0xEF)


def _first_fault(source: Source, encoding: str, bom: int) -> _Fault | None:
    return _Scan(encoding, bom).run(source)


def _binary(offset: int) -> Problem:
    return Problem(
        "file_binary",
        N_(
            "这不是 CSV 文件：第 %(byte)s 字节是二进制内容。"
            "如果它是没有标记的 UTF-16 文本，请指定编码；否则请另存为“CSV UTF-8（逗号分隔）”。"
        ),
        {"byte": offset + 1},
    )


def _line_too_long(line: int) -> Problem:
    return Problem(
        "file_line_too_long",
        N_("第 %(line)s 行超过 1 MB，不像客户名单。请检查文件的换行和引号后重新上传。"),
        {"line": line},
    )


def _damaged(encoding: str, fault: _Fault) -> Problem:
    return Problem(
        "encoding_damaged",
        N_(
            "文件是 %(encoding)s 编码，但第 %(line)s 行（第 %(byte)s 字节）的内容已损坏或不完整。"
            "请从来源重新导出；确认是其他编码时，请指定编码。"
        ),
        {"encoding": encoding, "line": fault.line, "byte": fault.offset + 1},
    )


def _wrong_override(encoding: str, fault: _Fault) -> Problem:
    return Problem(
        "encoding_override_wrong",
        N_(
            "按指定的编码 %(encoding)s 读不下去：第 %(line)s 行（第 %(byte)s 字节）出错。"
            "请改选其他编码，或选择自动识别。"
        ),
        {"encoding": encoding, "line": fault.line, "byte": fault.offset + 1},
    )
