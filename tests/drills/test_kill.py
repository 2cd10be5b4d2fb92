"""Lanes killed in mid-run and Redis emptied: every target at most once, every item accounted for.

Then SIGTERM while calls are in flight. Bounded: each wait has a limit, all of them together end
within a minute and a half. How soon a killed lane's accounts move again: `test_rates`.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import django_rq
import pytest
from django.db import connection

from batches.models import Account, Call, Event, Gateway, Item, Job, Lane, Shard
from tests.factories import ShardSpec, make_account, make_gateway, make_job
from tests.integration.store.support import assert_sound
from wecom_ops.local.files import free_port

from .rig import Children, Gate, environment, lanes_of, wait

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(sys.platform != "linux", reason="looks children up in /proc"),
]

ACCOUNTS, EACH, LANES, KILLS = 20, 30, 2, 2
LEASE = 4
#: seconds that each call takes while SIGTERM comes
SLOW = 2.5


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    redis = django_rq.get_connection("lanes")
    redis.flushdb()
    found = Children(tmp_path, environment(LANE_LEASE_SECONDS=str(LEASE), LANE_TURN_SECONDS="8"))
    try:
        yield found
    finally:
        found.end()
        redis.flushdb()
        redis.close()


def test_kill_lanes_twice_and_flush_once_sends_nothing_twice_and_loses_nothing(
    children: Children, tell: Callable[[str], None]
):
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

    took = _terminate_in_mid_call(stack, gate, accounts, children)
    tell(f"kill drill: all ended {took:.1f} s after SIGTERM, calls in flight take {SLOW:g} s")
    assert took <= 10


def _terminate_in_mid_call(
    stack: subprocess.Popen[bytes], gate: Gate, accounts: list[Account], children: Children
) -> float:
    """Seconds from SIGTERM to a clean end: what is in flight then is answered and recorded."""
    before = gate.total()
    gate.fail(kind="latency", seconds=SLOW)
    job = make_job(shards=[ShardSpec(pending=3, account=account) for account in accounts])
    items = Item.objects.filter(job_id=job.pk)
    flying = items.filter(state="submitted")
    wait(lambda: flying.count() >= ACCOUNTS // 2, 20, "calls in flight", children)
    began = time.monotonic()
    stack.terminate()
    stack.wait(20)
    took = time.monotonic() - began
    assert stack.returncode == 0
    states = Counter("in_doubt" if item.in_doubt_at else item.state for item in items.all())
    assert states.keys() == {"confirmed", "pending"}, f"{states}\n{children.logs()}"
    assert states["confirmed"] == gate.total() - before
    assert_sound(job)
    turns = Call.objects.filter(job_id=job.pk).values("lane_id")
    assert not Lane.objects.filter(pk__in=turns, ended_at=None).exists(), children.logs()
    return took
