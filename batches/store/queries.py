"""Named SQL: every block `-- name: xyz` of `sql/*.sql`, found by its name."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent / "sql"
_NAME = re.compile(r"^-- name: (\w+)[ \t]*$", re.MULTILINE)


@cache
def all_queries() -> dict[str, str]:
    """Name → statement, comments included.

    Raises `ValueError` if a name occurs twice.
    """
    queries: dict[str, str] = {}
    for path in sorted(_FOLDER.glob("*.sql")):
        parts = _NAME.split(path.read_text(encoding="utf-8"))
        for name, text in zip(parts[1::2], parts[2::2], strict=True):
            if name in queries:
                raise ValueError(f"query name used twice: {name} in {path.name}")
            queries[name] = text.strip()
    return queries


def sql(name: str) -> str:
    """The statement called `name`; `KeyError` if there is none."""
    return all_queries()[name]
