"""Hot queries find their rows by index, however many items there are and whatever the statistics.

The tables hold a few hundred thousand items. Their statistics are first those of a job's first
seconds, a handful of calls and all in flight: that is when a planner left to itself would scan.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import psycopg.sql
import pytest
from django.db import connection

from batches.models import Shard
from batches.store import connections
from batches.store.queries import sql as query
from tests.factories import make_account, make_gateway, make_job, make_lane

from .support import run, sql

SHARDS, EACH = 500, 600

BIG = {"batches_item", "batches_call"}
TABLES = "batches_item, batches_call, batches_shard, batches_job, batches_account"


@pytest.fixture(scope="module")
def loaded(django_db_setup: None, django_db_blocker: Any) -> Iterator[dict[str, Any]]:
    """One job of 300 000 items, a tenth of them sent; 30 calls in flight."""
    with django_db_blocker.unblock():
        try:
            yield _load()
        finally:
            with connection.cursor() as cursor:
                cursor.execute(
                    "truncate batches_item, batches_call;"
                    "delete from batches_jobminute; delete from batches_event;"
                    "delete from batches_shard; delete from batches_job;"
                    "delete from batches_account; delete from batches_gateway;"
                    "delete from batches_lane"
                )
            connection.close()


def _load() -> dict[str, Any]:
    gateway, lane = make_gateway(), make_lane()
    accounts = [make_account(gateway=gateway, lane=lane).pk for _ in range(SHARDS)]
    job = make_job(shards=[], total=SHARDS * EACH).pk
    Shard.objects.bulk_create(
        Shard(
            job_id=job,
            account_id=account,
            ordinal=n,
            status="running",
            total=EACH,
            pending=EACH - EACH // 10,
            confirmed=EACH // 10,
        )
        for n, account in enumerate(accounts, start=1)
    )
    sql(
        """
        insert into batches_item (id, job_id, shard_id, seq, row_no, target, fields, state,
          attempt, call_id, submitted_at, settled_at)
        select nextval('batches_item_id_seq'), s.job_id, s.id, n, n + 1, 't' || n, '{a,b}',
          case when n <= %s then 'confirmed' else 'pending' end, 0,
          case when n <= %s then s.id * 10000 + n end, case when n <= %s then now() end,
          case when n <= %s then now() end
        from batches_shard s, generate_series(1, %s) n where s.job_id = %s
        """,
        *[EACH // 10] * 4, EACH, job,
    )  # fmt: skip
    sql(
        "insert into batches_call (job_id, shard_id, account_id, lane_id, item_ids)"
        " select job_id, id, account_id, %s, '{}' from batches_shard where job_id = %s limit 30",
        lane.pk,
        job,
    )
    sql("analyze batches_call")
    sql("delete from batches_call where job_id = %s", job)
    sql(
        """
        insert into batches_call (id, job_id, shard_id, account_id, lane_id, item_ids, sent_at,
          answered_at)
        select i.call_id, i.job_id, i.shard_id, s.account_id, %s, array[i.id], now(),
          case when i.seq > 1 or s.ordinal > 30 then now() end
        from batches_item i join batches_shard s on s.id = i.shard_id
        where i.call_id is not null and i.job_id = %s
        """,
        lane.pk, job,
    )  # fmt: skip
    items = sql(
        """
        select i.id, i.shard_id, i.call_id, s.account_id
        from batches_item i join batches_shard s on s.id = i.shard_id
        where s.job_id = %s and i.seq = %s and s.ordinal <= 64 order by i.id
        """,
        job, EACH // 10 + 1,
    )  # fmt: skip
    sent = sql(
        "select id, call_id, shard_id from batches_item where job_id = %s and call_id is not null"
        " order by id limit 128",
        job,
    )
    return {
        "job": job,
        "lane": lane.pk,
        "accounts": [row[3] for row in items],
        "items": [row[0] for row in items],
        "shards": [row[1] for row in items],
        "sent": [row[0] for row in sent],
        "calls": [row[1] for row in sent],
    }


def _params(name: str, d: dict[str, Any]) -> dict[str, Any]:
    many = len(d["sent"])
    same = {
        "lane": d["lane"], "jobs": [d["job"]], "job": d["job"], "tz": "UTC", "most": 100,
        "shard": d["shards"][0],
    }  # fmt: skip
    own: dict[str, dict[str, Any]] = {
        "claim": {
            "accounts": d["accounts"],
            "sizes": [1] * len(d["items"]),
            "items": d["items"],
            "firsts": list(range(1, len(d["items"]) + 1)),
            "lasts": list(range(1, len(d["items"]) + 1)),
        },
        "settle": {
            "items": d["sent"], "calls": d["calls"], "fates": ["confirmed"] * many,
            "categories": [None] * many, "codes": [None] * many, "messages": [None] * many,
            "msg_ids": ["m"] * many, "waits": [0.0] * many, "counted": [True] * many,
            "refunds": [False] * many, "bads": [False] * many, "reached": [False] * many,
        },
        "settle_calls": {
            "calls": d["calls"], "outcomes": ["accepted"] * many, "statuses": [200] * many,
            "categories": [None] * many, "codes": [None] * many, "messages": [None] * many,
            "durations": [1] * many,
        },
        "slow_accounts": {
            "accounts": d["accounts"], "slows": [True] * 64, "holds": [1.0] * 64,
            "reasons": ["rate"] * 64, "pushes": [0.0] * 64, "calls": d["calls"][:64],
        },
        "recover_accounts": {"accounts": d["accounts"], "calls": d["calls"][:64]},
        "next_items": {"shards": d["shards"], "after": [100] * len(d["shards"]), "each": 64},
        "unsent_calls": {"known": d["calls"]},
        "mark_lost": {"calls": d["calls"]},
    }  # fmt: skip
    return same | own.get(name, {})


#: by the connection that runs them
LOOKUP = [
    "lock_jobs", "claim", "job_room", "unsent_calls", "settle", "settle_calls", "slow_accounts",
    "recover_accounts", "next_items",
    # these run after `plan_by_index`
    "lost_calls", "mark_lost", "abandon_chunk",
]  # fmt: skip
CONTROL = ["lane_accounts", "lane_gateways", "lane_shards", "adopt", "share"]
DJANGO = [
    "job_tally", "movable_jobs", "shards_to_abandon",
    "job_in_flight",
]  # fmt: skip


def _scans(node: dict[str, Any]) -> Iterator[str]:
    """Big tables that the plan reads from end to end, in the order of an index or without."""
    relation = node.get("Relation Name")
    if relation in BIG and (
        node["Node Type"] == "Seq Scan"
        or (
            node["Node Type"].startswith(("Index", "Bitmap Heap"))
            and not any(key in node for key in ("Index Cond", "Recheck Cond"))
            and node.get("Index Name") != "call_in_flight"  # as small as what is in flight
        )
    ):
        yield f"{node['Node Type']} on {relation} ({node.get('Index Name', '')})"
    for child in node.get("Plans", []):
        yield from _scans(child)


async def _explain(conn: connections.Connection, name: str, d: dict[str, Any], how: str) -> Any:
    """The plan of the prepared statement: generic where the lane's settings force it so."""
    order: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[1] not in order:
            order.append(found[1])
        return f"${order.index(found[1]) + 1}"

    text = re.sub(r"%\((\w+)\)s", number, query(name))
    await conn.execute(f"prepare hot as {text}")  # type: ignore[arg-type]
    values = psycopg.sql.SQL(", ").join(
        psycopg.sql.Literal(_params(name, d)[each]) for each in order
    )
    arguments = psycopg.sql.SQL("({})").format(values) if order else psycopg.sql.SQL("")
    cursor = await conn.execute(
        psycopg.sql.SQL("explain ({}, format json) execute hot {}").format(
            psycopg.sql.SQL(how),  # type: ignore[arg-type]
            arguments,
        )
    )
    row = await cursor.fetchone()
    assert row is not None
    await conn.execute("deallocate hot")
    return row[0][0]["Plan"]


async def _plans(d: dict[str, Any], names: list[str], *, lookup: bool) -> dict[str, Any]:
    conn = await connections.connect("plans", lookup_plans=lookup)
    try:
        return {name: await _explain(conn, name, d, "costs on") for name in names}
    finally:
        await conn.close()


def _spoil_statistics(*, empty: bool) -> None:
    """As if the tables had never been analyzed, or when nothing was in them.

    A server comes to either by itself, when an autovacuum happens to run at that moment.
    """
    if not sql("select usesuper from pg_user where usename = current_user")[0][0]:
        pytest.skip("only a superuser can change statistics")
    tables = "any(string_to_array(%s, ', ')::regclass[])"
    sql(f"delete from pg_statistic where starelid = {tables}", TABLES)
    sql(
        "update pg_class set reltuples = %s, relpages = %s"
        f" where oid = {tables}"
        f" or oid in (select indexrelid from pg_index where indrelid = {tables})",
        *((0, 1) if empty else (-1, 0)), TABLES, TABLES,
    )  # fmt: skip


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("statistics", ["fresh", "unknown", "empty", "analyzed"])
def test_hot_queries_on_a_loaded_table_scan_neither_items_nor_calls(loaded, statistics):
    if statistics in ("unknown", "empty"):
        _spoil_statistics(empty=statistics == "empty")
    elif statistics == "analyzed":
        sql(f"analyze {TABLES}")
    plans = run(_plans(loaded, LOOKUP, lookup=True))
    if statistics == "analyzed":  # else they go by whatever an earlier test left: no proof
        plans |= run(_plans(loaded, CONTROL + DJANGO, lookup=False))
    found = {name: scans for name, plan in plans.items() if (scans := list(_scans(plan)))}
    assert found == {}


@pytest.mark.django_db(transaction=True)
def test_claim_and_settle_on_a_loaded_table_stay_quick(loaded):
    """Buffers, not milliseconds: what a claim of 64 touches does not grow with the table."""

    async def go(name: str) -> int:
        conn = await connections.connect("plans", lookup_plans=True)
        try:
            await conn.execute("begin")
            plan = await _explain(conn, name, loaded, "analyze, buffers")
            await conn.execute("rollback")
        finally:
            await conn.close()
        return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])

    assert run(go("claim")) < 64 * 100
    assert run(go("settle")) < 128 * 100
