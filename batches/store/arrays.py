"""Arrays as PostgreSQL writes them: one text per array, several times cheaper than a list."""

from __future__ import annotations

from collections.abc import Iterable

#: nulls for every row, see `settle.sql`
EMPTY = "{}"


def numbers(values: Iterable[float | None]) -> str:
    """Of numbers and booleans."""
    return "{" + ",".join(["null" if v is None else str(v) for v in values]) + "}"


def words(values: Iterable[str]) -> str:
    """Of words that are ours: letters, digits and underscores, none of them `null`."""
    return "{" + ",".join(values) + "}"


def texts(values: Iterable[str | None]) -> str:
    """Of any text; what PostgreSQL cannot store of it (NUL, half a surrogate pair) goes."""
    found = "{" + ",".join(["null" if v is None else _quoted(v) for v in values]) + "}"
    return found.replace("\x00", "").encode(errors="replace").decode()


def _quoted(text: str) -> str:
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if '"' in text:
        text = text.replace('"', '\\"')
    return f'"{text}"'
