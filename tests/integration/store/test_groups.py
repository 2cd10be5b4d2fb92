"""How a group travels: arrays written as text, and statements that are one transaction."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batches.store import arrays, connections

from .support import run, sql

WORDS = st.text(st.sampled_from("abcxyz019_"), min_size=1).filter(lambda w: w.lower() != "null")
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"))


def _read(written: str, kind: str) -> Any:
    return sql(f"select %s::{kind}[]", written)[0][0]


@pytest.mark.django_db
@settings(max_examples=60, deadline=None)
@given(st.lists(st.none() | TEXTS | st.sampled_from(['"', "\\", "null", "NULL", "", "{}", ","])))
def test_texts_of_any_kind_are_read_back_as_they_were(values):
    assert _read(arrays.texts(values), "text") == values


@pytest.mark.django_db
@settings(max_examples=30, deadline=None)
@given(st.lists(WORDS))
def test_words_are_read_back_as_they_were(values):
    assert _read(arrays.words(values), "text") == values


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([], "bigint"),
        ([1, None, -3, 2**62], "bigint"),
        ([True, False, None], "bool"),
        ([0.1, 1e-9, 1e300, math.inf, None], "float8"),
    ],
)
def test_numbers_are_read_back_as_they_were(values, kind):
    assert _read(arrays.numbers(values), kind) == values


@pytest.fixture
def scratch(transactional_db: None) -> Any:
    sql("create table scratch (n integer primary key)")
    yield
    sql("drop table scratch")


def test_together_with_a_failing_statement_keeps_nothing(scratch):
    async def fail(conn: connections.Connection) -> None:
        async with connections.together(conn):
            await conn.execute("insert into scratch values (%s)", [1])
            await conn.execute("select 1 / %s::int", [0])

    async def go() -> None:
        conn = await connections.connect("together", lookup_plans=True)
        try:
            with pytest.raises(psycopg.errors.DivisionByZero):
                await fail(conn)
            async with connections.together(conn):
                await conn.execute("insert into scratch values (%s)", [2])
                await conn.execute("insert into scratch values (%s)", [3])
        finally:
            await conn.close()

    run(go())
    assert sql("select n from scratch order by n") == [(2,), (3,)]


def test_together_holds_the_first_statements_lock_to_the_end(scratch):
    """What the claim rests on: nobody changes a job between its lock and the claim's commit."""

    async def go() -> list[Any]:
        conn = await connections.connect("together", lookup_plans=True)
        other = await connections.connect("other")
        try:
            async with connections.together(conn):
                await conn.execute("select n from scratch where n = 1 for no key update")
                # flushed and answered, but not yet ended by a sync
                seen = await conn.execute("select n from scratch where n = 1")
                await seen.fetchall()
                with pytest.raises(psycopg.errors.LockNotAvailable):
                    await other.execute("select n from scratch for no key update nowait")
            cursor = await other.execute("select n from scratch for no key update nowait")
            return await cursor.fetchall()
        finally:
            await conn.close()
            await other.close()

    sql("insert into scratch values (1)")
    assert [row.n for row in run(go())] == [1]


def test_together_sees_in_its_second_statement_what_was_committed_before_it(scratch):
    """Each statement has a snapshot of its own, taken after the locks of the one before."""

    async def go() -> int:
        conn = await connections.connect("together", lookup_plans=True)
        other = await connections.connect("other")
        try:
            async with connections.together(conn):
                first = await conn.execute("select count(*) as n from scratch")
                await first.fetchall()
                await other.execute("insert into scratch values (7)")
                second = await conn.execute("select count(*) as n from scratch")
            return int((await second.fetchone()).n)  # type: ignore[union-attr]
        finally:
            await conn.close()
            await other.close()

    assert run(go()) == 1


def test_together_with_a_result_too_many_closes_and_says_so():
    """As when a server that ends the session speaks in the middle of a pipeline."""

    async def go() -> None:
        conn = await connections.connect("together")
        try:
            with pytest.raises(psycopg.OperationalError):
                async with connections.together(conn):
                    deque[int]().popleft()
            assert conn.closed
        finally:
            await conn.close()

    run(go())
