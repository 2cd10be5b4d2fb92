"""The lane's own asynchronous connections, outside Django's."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import psycopg
from django.conf import settings
from django.db import connection as django_connection
from psycopg.pq import PipelineStatus
from psycopg.rows import namedtuple_row

from .queries import sql

Connection = psycopg.AsyncConnection[Any]

# Hot statements look rows up by arrays of keys. A generic plan for `unnest($1)` is right only
# with index lookups; these settings make it so whatever the statistics say (a freshly loaded
# table has none), see docs/performance.md and tests/integration/store/test_plans.py.
LOOKUP_PLANS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}


async def connect(role: str, *, lookup_plans: bool = False) -> Connection:
    """A new autocommit connection to the default database.

    `role` shows as its application name. Raises `psycopg.OperationalError`.
    """
    params = dict(django_connection.get_connection_params())
    for key in ("context", "cursor_factory", "prepare_threshold", "server_side_binding"):
        params.pop(key, None)
    options = str(params.pop("options", "") or "")
    if lookup_plans:
        options += "".join(f" -c {name}={value}" for name, value in LOOKUP_PLANS.items())
    params["application_name"] = f"lane-{role}-{uuid.uuid4().hex[:6]}"
    params["options"] = options.strip()
    params.setdefault("connect_timeout", 5)
    return await psycopg.AsyncConnection.connect(
        autocommit=True, row_factory=namedtuple_row, prepare_threshold=0, **params
    )


@asynccontextmanager
async def together(conn: Connection) -> AsyncIterator[None]:
    """Statements of one transaction, sent without waiting for each other.

    On an autocommit connection the server takes all of a pipeline for one transaction and commits
    it at its end; that end is waited for. BEGIN and COMMIT would cost two more statements. Results
    are fetched after the block. A commit that is refused leaves the connection out of step: it is
    closed then, so that whoever uses it connects again.

    Raises `psycopg.Error`.
    """
    try:
        async with conn.pipeline():
            yield
    except IndexError as error:
        # psycopg's queue of results is empty when one more arrives: a server that ends a session
        # says so without having been asked
        await conn.close()
        raise psycopg.OperationalError("the server spoke out of turn") from error
    except BaseException:
        if conn.pgconn.pipeline_status != PipelineStatus.OFF:
            await conn.close()
        raise


def time_zone() -> str:
    """The installation's zone, in which a job's allowed hours are meant."""
    return settings.TIME_ZONE


async def rows(conn: Connection, name: str, **params: object) -> Sequence[Any]:
    """Run a named query; its rows as named tuples ([] for a statement without rows)."""
    cursor = await conn.execute(cast(Any, sql(name)), params)
    return await cursor.fetchall() if cursor.description else []
