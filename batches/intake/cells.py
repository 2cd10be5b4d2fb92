"""What spreadsheets and people leave around a value, taken off."""

from __future__ import annotations

import re
import unicodedata

_UNSEEN = "\ufeff\u200b\u200c\u200d\u200e\u200f\u2060"
#: Ends of a cell: blanks of every width, and marks that nobody sees.
EDGES = "".join(char for char in map(chr, range(0x3001)) if char.isspace()) + _UNSEEN
_INVISIBLE = dict.fromkeys(map(ord, _UNSEEN + "\xad"))
_PLAIN_ID = re.compile(r"[0-9A-Za-z_-]+")
#: `="7881…"`: an export's way of keeping a spreadsheet from making a number of it
_FORMULA_TEXT = re.compile(r'="(.*)"')
#: an apostrophe that keeps a number or a would-be formula a text (our own exports put it there)
_FORCED_TEXT = re.compile(r"'(?:[=+\-@].*|[0-9.]+)", re.DOTALL)
#: Unit separator, by which the cells of a row are joined on their way into the database.
SEPARATOR = "\x1f"
#: where `str.strip` would leave something that `clean_text` takes off
_NOT_PLAIN = re.compile(f"['{_UNSEEN}]")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_CONTROLS_BUT_SEPARATOR = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1e\x7f]")


def clean_text(cell: str) -> str:
    """A cell of free text: its ends trimmed, the text itself kept."""
    cell = cell.strip(EDGES)
    if cell[:1] == "'" and _FORCED_TEXT.fullmatch(cell):
        return cell[1:]
    return cell


def clean_row(row: list[str]) -> list[str]:
    """`clean_text` of every cell; most rows hold nothing but plain text and blanks."""
    if _NOT_PLAIN.search(SEPARATOR.join(row)):
        return [clean_text(cell) for cell in row]
    return [cell.strip() for cell in row]


def clean_id(cell: str) -> str:
    """A cell of an id column: widths folded, forced-text marks and invisible marks gone."""
    if _PLAIN_ID.fullmatch(cell):
        return cell
    folded = unicodedata.normalize("NFKC", cell.translate(_INVISIBLE)).strip(EDGES)
    if found := _FORMULA_TEXT.fullmatch(folded):
        folded = found[1].strip(EDGES)
    return folded[1:].lstrip(EDGES) if folded[:1] == "'" else folded


def join_cells(cells: list[str]) -> tuple[list[str], str]:
    """A row's cells, and the same as one text; controls other than tab and line ends go."""
    joined = SEPARATOR.join(cells)
    if joined.count(SEPARATOR) != len(cells) - 1 or _CONTROLS_BUT_SEPARATOR.search(joined):
        cells = [_CONTROLS.sub("", cell) for cell in cells]
        joined = SEPARATOR.join(cells)
    return cells, joined
