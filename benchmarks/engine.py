"""How fast one lane can go when nothing holds it: against its own client, against usual designs."""

from __future__ import annotations

from typing import Any

from django.db import connection

from . import ground, rows, usual
from .ground import Table, median

ACCOUNTS, EACH, JOBS = 500, 60, 4


def run(table: Table, *, quick: bool) -> None:
    rounds = 2 if quick else 5
    each = 20 if quick else EACH
    few = 400 if quick else 1000
    table.head(
        f"engine: {ACCOUNTS} accounts × {each} items, {JOBS} jobs, 0 ms gateway, {rounds} rounds"
    )
    bare: list[dict[str, Any]] = []
    lane: list[dict[str, Any]] = []
    others: dict[str, list[float]] = {name: [] for name in usual.DESIGNS}
    with ground.gateway() as port:
        for number in range(rounds):
            prepare(port, each)
            bare.append(ground.run("bare"))
            lane.append(run_lane())
            if number < 2:
                for name, rates in others.items():
                    if (rate := usual.measure(name, port=port, items=few)) is not None:
                        rates.append(rate)
    _tell(table, bare, lane, others)


def prepare(port: int, each: int) -> None:
    """Fresh rows, everything pending, vacuumed and checkpointed."""
    rows.clear()
    rows.make_jobs(rows.make_accounts(port, ACCOUNTS), jobs=JOBS, each=each)
    rows.tidy()


def run_lane(**extra: str) -> dict[str, Any]:
    """One turn until all is sent; every item must be confirmed."""
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        server = ground.PostgresCpu(cursor.fetchone()[0])
    told = ground.run("lane", "--sample", **extra)
    told["server_cpu"] = server.used()
    ((left,),) = rows.rows("select count(*) from batches_item where state <> 'confirmed'")
    assert left == 0, f"{left} items are not confirmed"
    return told


def _tell(
    table: Table,
    bare: list[dict[str, Any]],
    lane: list[dict[str, Any]],
    others: dict[str, list[float]],
) -> None:
    def rate(runs: list[dict[str, Any]]) -> float:
        return median(run["sent"] / run["seconds"] for run in runs)

    def per_item(runs: list[dict[str, Any]], key: str) -> str:
        return f"{median(run[key] / run['sent'] for run in runs) * 1000:.3f} ms"

    pairs = [
        a["sent"] / a["seconds"] / (b["sent"] / b["seconds"])
        for a, b in zip(lane, bare, strict=True)
    ]
    table.add("bare client, no database", f"{rate(bare):,.0f}/s, CPU {per_item(bare, 'cpu')}")
    table.add(
        "one lane, all durable",
        f"{rate(lane):,.0f}/s, CPU {per_item(lane, 'cpu')}"
        f" + PostgreSQL {per_item(lane, 'server_cpu')}",
        f"{median(pairs):.2f} × bare ({min(pairs):.2f}–{max(pairs):.2f})",
        "≥ 0.6",
    )
    for name, rates in others.items():
        if rates:
            table.add(
                usual.DESIGNS[name],
                f"{median(rates):,.0f}/s",
                f"lane {rate(lane) / median(rates):.1f} ×",
                "≥ 10" if name == "rq" else "",
            )
        else:
            table.add(usual.DESIGNS[name], "skipped: not installed (extra `bench`)")
    _tell_steps(table, lane)


def _tell_steps(table: Table, lane: list[dict[str, Any]]) -> None:
    """Where a turn's time goes: claim, settle and fetch each run one at a time."""
    busiest = ("", 0.0)
    for name in ("claim", "settle", "fetch", "tick", "send"):
        steps = [run["steps"][name] for run in lane]
        share = median(step["wall"] / run["seconds"] for step, run in zip(steps, lane, strict=True))
        calls = median(step["calls"] for step in steps)
        size = median(step["size"] / max(1, step["calls"]) for step in steps)
        each = median(step["wall"] / max(1, step["calls"]) for step in steps) * 1000
        if name == "send":
            told = f"{each:.1f} ms each, {share:.0f} in flight on average"
        else:
            told = f"{calls:.0f} × {size:.0f}, {each:.1f} ms each, {share:.0%} of the time"
            busiest = max(busiest, (name, share), key=lambda b: b[1])
        table.add(f"  step {name}", told)
    table.add("  slowest step", f"{busiest[0]}, under way {busiest[1]:.0%} of the time")
    cpu: dict[str, float] = {}
    for run in lane:
        total = sum(run["cpu_samples"].values())
        for name, count in run["cpu_samples"].items():
            cpu[name] = cpu.get(name, 0.0) + count / total / len(lane)
    shares = sorted(cpu.items(), key=lambda part: -part[1])
    table.add("  CPU of the lane", ", ".join(f"{name} {share:.0%}" for name, share in shares))
