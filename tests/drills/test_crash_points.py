"""A lane that dies at each of its steps: nothing is sent twice, nothing lost, the budget exact."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection
from django.db.models.functions import Now

from batches.engine import steps
from batches.models import Gateway, Item, Job, Lane
from batches.selectors.verify import verify
from tests.factories import ShardSpec, make_account, make_gateway, make_job
from tests.integration.engine.stage import turns_until
from tests.integration.store.support import assert_sound, run
from wecom_ops.local.files import free_port

from .rig import Children, Gate, environment, wait

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(sys.platform != "linux", reason="kills processes"),
]

ACCOUNTS, EACH, BUDGET = 6, 5, 26

#: per account one call that waits, and one whose answer is not recorded yet
MOST = 2 * ACCOUNTS
#: step → how many items must and may be in doubt afterwards
STEPS = {
    "lane.leased": (0, 0),
    "lane.adopted": (0, 0),
    "claim.before:2": (0, MOST),
    "claim.committed:2": (1, MOST),
    "send.waiting:8": (1, MOST),
    "send.answered:8": (1, MOST),
    "settle.done:3": (0, MOST),
    "lane.draining": (1, MOST),
    "lane.ending": (0, 0),
}
#: these come only when a turn ends in the middle of its work
BY_TIME = {"lane.draining", "lane.ending"}


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    folder = tmp_path_factory.mktemp("gateway")
    children = Children(folder, {})
    port = free_port()
    gate = Gate(port)
    children.env = environment()
    children.manage(
        "simulate_gateway", "--port", str(port), "--latency-ms", "120-220", "--no-limits"
    )
    try:
        wait(gate.ready, 30, "gateway up", children)
        yield gate
    finally:
        children.end()


class Lanes:
    """A process for each step; while one works, the next one is getting ready."""

    def __init__(self, folder: Path) -> None:
        self.children = Children(folder, {})
        self._ready: dict[str, subprocess.Popen[bytes]] = {}

    def take(self, step: str) -> subprocess.Popen[bytes]:
        found = self._ready.pop(step, None) or self._start(step)
        following = list(STEPS)[list(STEPS).index(step) + 1 :]
        if following and following[0] not in self._ready:
            self._ready[following[0]] = self._start(following[0])
        return found

    def _start(self, step: str) -> subprocess.Popen[bytes]:
        seconds = "0.6" if step in BY_TIME else "20"
        return self.children.python(
            "-m", "tests.drills.one_turn", seconds, log=step, stdin=subprocess.PIPE,
            **environment(LANE_CRASH_AT=step),
        )  # fmt: skip


@pytest.fixture(scope="module")
def lanes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lanes]:
    found = Lanes(tmp_path_factory.mktemp("lanes"))
    try:
        yield found
    finally:
        found.children.end()


@pytest.mark.parametrize("step", STEPS)
def test_lane_dies_at_step_and_the_next_one_goes_on(step: str, gate: Gate, lanes: Lanes):
    gateway = make_gateway(base_url=gate.url, timeout_seconds=5.0)
    accounts = [make_account(gateway=gateway, total_rate_per_min=6000) for _ in range(ACCOUNTS)]
    job = make_job(
        shards=[ShardSpec(pending=EACH, account=account) for account in accounts],
        budget_limit=BUDGET, breaker_streak=1000, breaker_min_sample=1000, breaker_window=1000,
    )  # fmt: skip
    dying = lanes.take(step)
    dying.communicate(b"begin\n", timeout=30)
    assert dying.returncode == -signal.SIGKILL, lanes.children.logs()
    connection.close()
    at_death = _states(job)
    # the dead lane's lease runs out; a healthy one sees to the rest
    Lane.objects.filter(ended_at=None).update(lease_expires_at=Now())
    run(turns_until(job, "paused", "verifying", within=30))

    sends = Counter(send for send in gate.sends() if send[0] in {a.guid for a in accounts})
    assert max(sends.values()) == 1, f"sent twice: {sends - Counter(set(sends))}"
    items = list(Item.objects.filter(job_id=job.pk).select_related("shard__account"))
    where = {(i.shard.account.guid, i.target): _state(i) for i in items}
    assert {where[send] for send in sends} <= {"confirmed", "in_doubt"}, "it took effect"
    confirmed = {place for place, state in where.items() if state == "confirmed"}
    assert confirmed <= sends.keys(), "confirmed, but it took no effect"
    found = Counter(where.values())
    least, most = STEPS[step]
    assert least <= found["in_doubt"] <= most, f"{found}; when it died: {at_death}"
    assert found["in_doubt"] <= at_death["in_flight"], "more in doubt than was in flight"
    assert found["confirmed"] + found["in_doubt"] == BUDGET
    assert found["pending"] == ACCOUNTS * EACH - BUDGET
    after = Job.objects.get(pk=job.pk)
    assert (after.budget_used, after.status, after.pause_reason) == (BUDGET, "paused", "budget")
    if step.startswith("claim.committed"):
        assert len(sends) < BUDGET, "it died before any request of that claim left"
    if step.startswith("send"):
        assert any(where[send] == "in_doubt" for send in sends), "what it waited for had arrived"
    assert_sound(job)
    assert verify(grace=0).findings == ()
    Gateway.objects.filter(pk=gateway.pk).update(is_active=False)


def _state(item: Item) -> str:
    if item.state == "submitted":
        return "in_doubt" if item.in_doubt_at else "in_flight"
    return str(item.state)


def _states(job: Job) -> Counter[str]:
    return Counter(map(_state, Item.objects.filter(job_id=job.pk)))


def test_steps_outside_a_drill_do_nothing():
    assert steps.step is steps.step_soon
    assert steps.step("claim.before") is None
    assert steps.step.__name__ == "_go_on"


def test_step_that_is_told_to_crash_kills_at_its_nth_passing_alone(
    monkeypatch: pytest.MonkeyPatch,
):
    died: list[int] = []
    monkeypatch.setattr(steps, "_die", lambda: died.append(1))
    crash = steps._Crash("settle.done:2")
    for label in ("settle.done", "claim.before", "claim.before"):
        crash.passes(label)
    assert died == []
    crash.passes("settle.done")
    assert died == [1]
