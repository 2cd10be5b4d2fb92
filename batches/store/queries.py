"""Named SQL: every block `-- name: xyz` of `sql/*.sql`, found by its name.

A block `-- part: xyz` is no statement of its own: it stands wherever a statement has the line
`-- use: xyz`, so that what several of them go by is written once.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from django.db import connection

_FOLDER = Path(__file__).parent / "sql"
_BLOCK = re.compile(r"^-- (name|part): (\w+)[ \t]*$", re.MULTILINE)
_USE = re.compile(r"^-- use: (\w+)[ \t]*$", re.MULTILINE)


@cache
def all_queries() -> dict[str, str]:
    """Name → statement, comments included and parts put in.

    Raises `ValueError` if a name occurs twice, `KeyError` for a part that there is not.
    """
    found: dict[str, dict[str, str]] = {"name": {}, "part": {}}
    for path in sorted(_FOLDER.glob("*.sql")):
        blocks = _BLOCK.split(path.read_text(encoding="utf-8"))
        for kind, name, text in zip(blocks[1::3], blocks[2::3], blocks[3::3], strict=True):
            if name in found[kind]:
                raise ValueError(f"query {kind} used twice: {name} in {path.name}")
            found[kind][name] = text.strip()
    parts = found["part"]
    return {name: _USE.sub(lambda use: parts[use[1]], text) for name, text in found["name"].items()}


def sql(name: str) -> str:
    """The statement called `name`; `KeyError` if there is none."""
    return all_queries()[name]


def run_query(name: str, **params: Any) -> list[dict[str, Any]]:
    """Run a named query on Django's connection; its rows by column name, [] if it gives none."""
    with connection.cursor() as cursor:
        cursor.execute(sql(name), params)
        if cursor.description is None:
            return []
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
