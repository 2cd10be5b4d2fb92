"""Every named query is understood by a real PostgreSQL, on the real tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.db import connection

from batches.store import queries
from batches.store.queries import all_queries, sql

_PARAMETER = re.compile(r"%\((\w+)\)s")
#: what PREPARE takes; anything else (a table made on the fly, COPY, SET) is run or skipped
_PREPARABLE = re.compile(r"^\s*(with|select|insert|update|delete|merge|values)\b", re.IGNORECASE)
_OTHER = re.compile(r"^\s*(create|copy|drop|truncate|set|lock|analyze|alter)\b", re.IGNORECASE)
_MAKES_A_TABLE = re.compile(r"\bcreate (temp|temporary|unlogged) table\b", re.IGNORECASE)


def _bare(text: str) -> str:
    """Without comment lines, so that the first word is the statement's."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))


def _numbered(text: str) -> tuple[str, int]:
    """`%(name)s` → `$1`, the same name the same number, as the server-side protocol does."""
    names: dict[str, int] = {}
    numbered = _PARAMETER.sub(lambda found: f"${names.setdefault(found[1], len(names) + 1)}", text)
    return numbered.replace("%%", "%"), len(names)


@pytest.fixture
def staged(db: None) -> None:
    """Tables that queries make for themselves exist for those that come after."""
    with connection.cursor() as cursor:
        for text in all_queries().values():
            if _MAKES_A_TABLE.search(_bare(text)):
                cursor.execute(_PARAMETER.sub("'1'", text).replace("%%", "%"))


@pytest.mark.parametrize("name", sorted(all_queries()))
def test_query_prepares_and_has_a_plan(name: str, staged: None) -> None:
    text = _bare(sql(name))
    if not _PREPARABLE.match(text):
        assert _OTHER.match(text), f"{name} is no statement"
        return
    numbered, count = _numbered(text)
    with connection.cursor() as cursor:
        # no parameters are passed: psycopg then leaves $1 and % alone
        cursor.execute(f"prepare tested as {numbered}")
        values = f"({', '.join(['null'] * count)})" if count else ""
        cursor.execute("set local plan_cache_mode = force_generic_plan")
        cursor.execute(f"explain execute tested{values}")
        assert cursor.fetchall()
        cursor.execute("deallocate tested")


def test_queries_all_say_why() -> None:
    """A name alone explains little statements; whoever writes a longer one says why."""
    long = {name: text for name, text in all_queries().items() if text.count("\n") > 12}
    silent = [name for name, text in long.items() if "--" not in text]
    assert not silent


def test_query_name_used_twice_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.sql").write_text("-- name: one\nselect 1\n", encoding="utf-8")
    (tmp_path / "b.sql").write_text("-- name: one\nselect 2\n", encoding="utf-8")
    monkeypatch.setattr(queries, "_FOLDER", tmp_path)
    with pytest.raises(ValueError, match=r"one in b\.sql"):
        all_queries.__wrapped__()


def test_query_file_gives_every_block_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.sql").write_text(
        "-- about the file\n\n-- name: one\n-- why\nselect 1\n\n-- name: two\nselect 2\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(queries, "_FOLDER", tmp_path)
    assert all_queries.__wrapped__() == {"one": "-- why\nselect 1", "two": "select 2"}


def test_query_that_uses_a_part_has_it_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.sql").write_text(
        "-- name: one\nwith\n-- use: shared\nselect 1\n", encoding="utf-8"
    )
    (tmp_path / "b.sql").write_text(
        "-- part: shared\nt as (select 2)\n\n-- name: two\nselect 2\n", encoding="utf-8"
    )
    monkeypatch.setattr(queries, "_FOLDER", tmp_path)
    assert all_queries.__wrapped__() == {
        "one": "with\nt as (select 2)\nselect 1",
        "two": "select 2",
    }


def test_query_that_uses_a_part_that_there_is_not_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.sql").write_text("-- name: one\n-- use: nonsense\n", encoding="utf-8")
    monkeypatch.setattr(queries, "_FOLDER", tmp_path)
    with pytest.raises(KeyError):
        all_queries.__wrapped__()


def test_query_unknown_name_is_an_error() -> None:
    with pytest.raises(KeyError):
        sql("nonsense")
