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
    """Of anything that PostgreSQL can store as text."""
    return "{" + ",".join(["null" if v is None else _quoted(v) for v in values]) + "}"


def _quoted(text: str) -> str:
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if '"' in text:
        text = text.replace('"', '\\"')
    return f'"{text}"'
