"""Whether one lane holds many accounts at their full rate, none of them above it, none late."""

from __future__ import annotations

import urllib.request
from bisect import bisect_left
from itertools import pairwise
from typing import Any

from . import ground, rows
from .ground import Table, percentile

PER_MIN, SECONDS, WARM = 60, 75.0, 10.0
WINDOW = 60.0


def run(table: Table, *, quick: bool) -> None:
    count = 300 if quick else 2000
    table.head(f"held: {count:,} accounts at {PER_MIN} a minute, one lane, {SECONDS:.0f} s")
    rows.clear()
    with ground.gateway("--record") as port:
        accounts = rows.make_accounts(port, count, per_min=PER_MIN)
        rows.make_jobs(accounts, jobs=4, each=int(SECONDS * 1.3))
        rows.tidy()
        told = ground.run("lane", "--turn", str(SECONDS), "--lateness", "--sample")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/record") as answer:
            sends = _by_account(answer.read())
    _tell(table, told, sends, count)


def _by_account(record: bytes) -> dict[bytes, list[float]]:
    sends: dict[bytes, list[float]] = {}
    for line in record.splitlines():
        at, guid = line.split()
        sends.setdefault(guid, []).append(float(at))
    for times in sends.values():
        times.sort()
    return sends


def _worst(times: list[float]) -> int:
    """The most sends in any 60 s."""
    return max(n + 1 - bisect_left(times, at - WINDOW) for n, at in enumerate(times))


def _tell(table: Table, told: dict[str, Any], sends: dict[bytes, list[float]], count: int) -> None:
    # the last account adopted starts the clock; what follows is steady
    start = max(times[0] for times in sends.values()) + WARM
    end = min(start + WINDOW, max(times[-1] for times in sends.values()))
    held = sum(bisect_left(t, end) - bisect_left(t, start) for t in sends.values())
    allowed = count * PER_MIN * (end - start) / WINDOW
    table.add(
        f"achieved of allowed, over {end - start:.0f} s",
        f"{held:,} of {allowed:,.0f}",
        f"{held / allowed:.1%}",
        "≥ 97 %",
    )
    worst = max(map(_worst, sends.values()))
    table.add("fullest 60 s of any account", f"{worst} sends", f"{worst / PER_MIN:.1%}", "≤ 100 %")
    late = told["late"]
    table.add(
        "late after due, p50 / p99 / worst",
        f"{percentile(late, 0.5) * 1000:.1f} / {percentile(late, 0.99) * 1000:.1f} / "
        f"{late[-1] * 1000:.0f} ms",
        "",
        "p99 ≤ 100 ms",
    )
    gaps = [b - a for times in sends.values() for a, b in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    spread = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5 / mean
    table.add("gaps of an account: coefficient of variation", f"{spread:.2f}", "", "≥ 0.2")
    table.add("CPU of the lane, of one core", f"{told['cpu'] / told['seconds']:.0%}")
