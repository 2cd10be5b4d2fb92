"""Lanes killed in mid-run and Redis emptied: every target at most once, every item accounted for.

Bounded: each wait has a limit, all of them together end within a minute and a half.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import django_rq
import pytest
from django.conf import settings
from django.db import connection
from psycopg.conninfo import make_conninfo

from batches.models import Event, Gateway, Item, Job, Shard
from tests.factories import ShardSpec, make_account, make_gateway, make_job
from tests.integration.store.support import assert_sound
from wecom_ops.local.files import free_port

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(sys.platform != "linux", reason="looks children up in /proc"),
]

ROOT = Path(__file__).resolve().parents[2]
ACCOUNTS, EACH, LANES, KILLS = 20, 30, 2, 2
LEASE = 3


def database_url() -> str:
    names = ("dbname", "user", "password", "host", "port")
    params = connection.get_connection_params()
    return make_conninfo(**{name: params[name] for name in names if name in params})


class Children:
    """Processes of this drill, ended with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._env = os.environ | {
            "DATABASE_URL": database_url(),
            "REDIS_URL": settings.REDIS_URL,
            "SECRET_KEY": settings.SECRET_KEY,
            "DJANGO_SETTINGS_MODULE": "wecom_ops.settings",
            "HTTPS": "off",
            "LANE_LEASE_SECONDS": str(LEASE),
            "LANE_TURN_SECONDS": "8",
        }

    def manage(self, *words: str) -> subprocess.Popen[bytes]:
        log = (self._folder / f"{words[0]}.log").open("ab")
        process = subprocess.Popen(
            [sys.executable, ROOT / "manage.py", *words], env=self._env, stdout=log, stderr=log
        )
        log.close()
        self._started.append((words[0], process))
        return process

    def logs(self) -> str:
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-6000:]}"
            for path in sorted(self._folder.glob("*.log"))
        )

    def end(self) -> None:
        for _, process in reversed(self._started):
            process.terminate()
        for _, process in reversed(self._started):
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    redis = django_rq.get_connection("lanes")
    redis.flushdb()
    found = Children(tmp_path)
    try:
        yield found
    finally:
        found.end()
        redis.flushdb()
        redis.close()


def lanes_of(stack: subprocess.Popen[bytes]) -> list[int]:
    """Process ids of the lane workers that this stack runs now."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if parent == stack.pid and b"rqworker" in words and b"lanes" in words:
                found.append(int(folder.name))
    return sorted(found)


class Gate:
    """The simulated gateway as the judge sees it."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=10) as answer:
            return bytes(answer.read())

    def ready(self) -> bool:
        with suppress(OSError):
            self._get("/_sim/stats")
            return True
        return False

    def total(self) -> int:
        return int(json.loads(self._get("/_sim/stats"))["total"])

    def sends(self) -> list[tuple[str, str]]:
        calls = [json.loads(line) for line in self._get("/_sim/calls").splitlines()]
        return [(call["guid"], call["target"]) for call in calls]


def wait(condition: Callable[[], bool], within: float, what: str, children: Children) -> None:
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {within} s\n{children.logs()}"
        time.sleep(0.05)


def test_kill_lanes_twice_and_flush_once_sends_nothing_twice_and_loses_nothing(children: Children):
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    port = free_port()
    gate = Gate(port)
    gateway = make_gateway(base_url=gate.url, timeout_seconds=5.0)
    accounts = [make_account(gateway=gateway, total_rate_per_min=240) for _ in range(ACCOUNTS)]
    job = make_job(
        shards=[ShardSpec(pending=EACH, account=account) for account in accounts],
        breaker_streak=1000, breaker_min_sample=1000, breaker_window=1000,
    )  # fmt: skip
    children.manage(
        "simulate_gateway", "--port", str(port), "--latency-ms", "20-200",
        "--no-limits",
    )  # fmt: skip
    wait(gate.ready, 20, "gateway up", children)
    stack = children.manage("stack", "--no-web", "--lanes", str(LANES))

    killed = 0
    for sends, blow in ((80, "kill"), (220, "flush"), (330, "kill")):
        wait(lambda sends=sends: gate.total() >= sends, 30, f"{sends} sends", children)
        time.sleep(rng.uniform(0, 0.4))
        if blow == "flush":
            django_rq.get_connection("lanes").flushdb()
        else:
            os.kill(rng.choice(lanes_of(stack)), signal.SIGKILL)
            killed += 1

    def at_rest() -> bool:
        connection.close()
        return Job.objects.get(pk=job.pk).status in {"completed", "verifying"}

    wait(at_rest, 45, "every item accounted for", children)

    sends = gate.sends()
    twice = {send: n for send, n in Counter(sends).items() if n > 1}
    assert not twice, f"sent twice (seed {seed}): {twice}"
    items = list(Item.objects.filter(job_id=job.pk).select_related("shard__account"))
    states = Counter("in_doubt" if item.in_doubt_at else item.state for item in items)
    print(dict(states), f"{len(sends)} arrived")
    assert sum(states.values()) == ACCOUNTS * EACH
    assert set(states) <= {"confirmed", "in_doubt"}, f"{states} (seed {seed})"
    assert killed == KILLS
    assert states["in_doubt"] <= KILLS * ACCOUNTS, f"{states} (seed {seed})"
    # confirmed exactly where it arrived; what arrived and is not confirmed is in doubt
    arrived = set(sends)
    confirmed = {(i.shard.account.guid, i.target) for i in items if i.state == "confirmed"}
    doubted = {(i.shard.account.guid, i.target) for i in items if i.in_doubt_at}
    assert confirmed <= arrived
    assert arrived - confirmed <= doubted
    assert_sound(job)
    assert sum(Shard.objects.filter(job=job).values_list("in_doubt", flat=True)) == len(doubted)
    lost = Event.objects.filter(job=job, kind="job.calls_lost")
    assert sum(event.data["calls"] for event in lost) >= len(doubted)
    assert Gateway.objects.count() == 1

    stack.terminate()
    began = time.monotonic()
    stack.wait(20)
    assert time.monotonic() - began <= 10, "SIGTERM: a clean exit within 10 s"
    assert stack.returncode == 0
