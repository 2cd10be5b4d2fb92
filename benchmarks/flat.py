"""Whether an item costs the same whether ten thousand or millions lie in the tables."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from typing import Any

import psycopg
from django.db import connection

from . import ground, rows
from .ground import Table, median

ACCOUNTS, EACH = 500, 40
BIG = {"batches_item", "batches_call"}


def run(table: Table, *, quick: bool, items: int) -> None:
    levels = (10_000, 100_000) if quick else tuple(sorted({10_000, 100_000, 1_000_000, items}))
    rounds = 2 if quick else 5
    table.head(f"flat: a job of {ACCOUNTS * EACH:,} items on top of settled ones, {rounds} rounds")
    found: dict[int, list[dict[str, Any]]] = {level: [] for level in levels}
    with ground.gateway() as port:
        for level in levels:
            with database(level):
                accounts = rows.make_accounts(port, ACCOUNTS)
                rows.make_history(accounts, level, per_job=max(20_000, level // 100))
                rows.tidy()
        for _ in range(rounds):
            for level in levels:
                with database(level):
                    found[level].append(_measure())
        _tell(table, found)
        with database(levels[-1]):
            scans = _scans()
    table.add(
        f"hot statements that scan items or calls, at {levels[-1]:,}",
        ", ".join(scans) or "none",
        "",
        "none",
    )
    for level in levels:
        rows.execute(f'drop database if exists "benchmark_{level}"')


class database:  # noqa: N801 - reads as the statement it is
    """Django and children on a database of its own per level, made on first use."""

    def __init__(self, level: int) -> None:
        self.name = f"benchmark_{level}"

    def __enter__(self) -> None:
        self._settings = dict(connection.settings_dict)
        self._url = os.environ["DATABASE_URL"]
        if not rows.rows("select 1 from pg_database where datname = %s", self.name):
            rows.clear()
            main = self._settings["NAME"]
            self._switch("postgres")
            rows.execute(f'create database "{self.name}" template "{main}"')
        self._switch(self.name)

    def __exit__(self, *_: object) -> None:
        self._switch(str(self._settings["NAME"]))
        os.environ["DATABASE_URL"] = self._url

    def _switch(self, name: str) -> None:
        connection.close()
        connection.settings_dict["NAME"] = name
        os.environ["DATABASE_URL"] = self._url.replace(
            f"/{self._settings['NAME']}?", f"/{name}?", 1
        )


def _measure() -> dict[str, Any]:
    accounts = [row[0] for row in rows.rows("select id from batches_account order by id")]
    job = rows.make_job(accounts, EACH)
    rows.execute("analyze batches_item, batches_shard, batches_job")
    rows.execute("checkpoint")
    cpu = ground.PostgresCpu(rows.rows("select pg_backend_pid()")[0][0])
    told = ground.run("lane")
    told["server_cpu"] = cpu.used()
    assert told["sent"] == ACCOUNTS * EACH, told
    rows.drop_job(job)
    rows.tidy()
    return told


def _tell(table: Table, found: dict[int, list[dict[str, Any]]]) -> None:
    def per_item(run: dict[str, Any]) -> float:
        return float(run["seconds"]) / run["sent"]

    def statement(run: dict[str, Any], name: str) -> float:
        return float(run["steps"][name]["wall"]) / run["steps"][name]["size"]

    base, *_ = found.values()
    for level, runs in found.items():
        # each run against that of the lowest level in the same round
        ratio = median(per_item(run) / per_item(low) for run, low in zip(runs, base, strict=True))
        steps = {
            name: median(
                statement(run, name) / statement(low, name)
                for run, low in zip(runs, base, strict=True)
            )
            for name in ("claim", "settle")
        }
        cpu = {
            key: median(run[key] / low[key] for run, low in zip(runs, base, strict=True))
            for key in ("server_cpu", "cpu")
        }
        table.add(
            f"time per item at {level:,}",
            f"{median(map(per_item, runs)) * 1000:.3f} ms; claim × {steps['claim']:.2f},"
            f" settle × {steps['settle']:.2f}; CPU of PostgreSQL × {cpu['server_cpu']:.2f},"
            f" of the lane × {cpu['cpu']:.2f}",
            f"{ratio:.2f} ×",
            "≤ 1.15",
        )


def _scans() -> list[str]:
    """Hot statements whose plan, on a lane's own connection, reads a big table from end to end."""
    many = 64
    found = rows.rows(
        "select i.id, i.call_id, i.shard_id, s.account_id from batches_item i"
        " join batches_shard s on s.id = i.shard_id where i.state = 'confirmed' limit %s",
        many,
    )
    items, calls, shards, accounts = (list(column) for column in zip(*found, strict=True))
    jobs = [row[0] for row in rows.rows("select id from batches_job limit 4")]
    none, no, yes = [None] * many, [False] * many, [True] * many
    params: dict[str, dict[str, Any]] = {
        "claim": {
            "lane": 1, "jobs": jobs, "accounts": accounts, "sizes": [1] * many, "items": items,
            "firsts": list(range(1, many + 1)), "lasts": list(range(1, many + 1)), "tz": "UTC",
        },
        "settle": {
            "items": items, "calls": calls, "fates": ["confirmed"] * many, "categories": none,
            "codes": none, "messages": none, "msg_ids": ["m"] * many, "waits": [0.0] * many,
            "counted": yes, "refunds": no, "bads": no, "reached": no,
        },
        "settle_calls": {
            "calls": calls, "outcomes": ["accepted"] * many, "statuses": [200] * many,
            "categories": none, "codes": none, "messages": none, "durations": [1] * many,
        },
        "next_items": {"shards": shards, "after": [0] * many, "each": 64},
        "unsent_calls": {"lane": 1, "known": calls},
    }  # fmt: skip
    return asyncio.run(_explain(params))


async def _explain(params: dict[str, dict[str, Any]]) -> list[str]:
    from batches.store import connections
    from batches.store.queries import sql

    scans: list[str] = []
    conn = await connections.connect("benchmark", lookup_plans=True)
    try:
        for name, values in params.items():
            plan = await _plan(conn, sql(name), values)
            scans += [f"{name}: {relation}" for relation in _sequential(plan)]
    finally:
        await conn.close()
    return scans


async def _plan(conn: Any, statement: str, values: dict[str, Any]) -> dict[str, Any]:
    """As prepared, and so as generic as the lane's own."""
    order = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", statement)))
    text = re.sub(r"%\((\w+)\)s", lambda found: f"${order.index(found[1]) + 1}", statement)
    await conn.execute(f"prepare hot as {text}")
    literals = psycopg.sql.SQL(", ").join(psycopg.sql.Literal(values[name]) for name in order)
    explain = psycopg.sql.SQL("explain (format json) execute hot ({})").format(literals)
    ((told,),) = await (await conn.execute(explain)).fetchall()
    await conn.execute("deallocate hot")
    plan: dict[str, Any] = told[0]["Plan"]
    return plan


def _sequential(node: dict[str, Any]) -> Iterator[str]:
    if node["Node Type"] == "Seq Scan" and node.get("Relation Name") in BIG:
        yield str(node["Relation Name"])
    for child in node.get("Plans", []):
        yield from _sequential(child)
