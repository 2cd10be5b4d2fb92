"""Everything goes wrong at once, on servers of its own; the gateway's record is the judge.

`DRILL_SECONDS` makes it longer, `DRILL_SEED` repeats one; both are in the line that it prints.
"""

from __future__ import annotations

import csv
import json
import os
import random
import secrets
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .plant import SIGINT, SIGQUIT, TIMEOUT, Plant, plant
from .rig import wait, worst_window

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kills processes")

SECONDS = float(os.environ.get("DRILL_SECONDS", "14"))
SEED = int(os.environ.get("DRILL_SEED", "0")) or secrets.randbits(31)
#: of that long a run each account sends a full rate all the time; a short one has less to do
ACCOUNTS, RATE = 10, 240
EACH = max(60, int(SECONDS * RATE / 60))
#: sends of the messages: so few that they are used up on the way, and what a raise adds
BUDGET, RAISE = 60, 150

#: what may go wrong with one call, all at the same time
FAULTS = [
    {"kind": "refuse", "code": 40003, "probability": 0.02},
    {"kind": "refuse", "code": -1, "probability": 0.03},
    {"kind": "http_429", "retry_after": 0.5, "probability": 0.01},
    {"kind": "http_5xx_after_effect", "probability": 0.02},
    {"kind": "hang", "seconds": 20, "probability": 0.01},
    {"kind": "hang", "seconds": 20, "effect": False, "probability": 0.01},
    {"kind": "reset_before_effect", "probability": 0.02},
    {"kind": "reset_after_effect", "probability": 0.02},
    {"kind": "slow_drip", "seconds": 6, "probability": 0.01},
    {"kind": "garbage_body", "probability": 0.02},
    {"kind": "truncated_body", "probability": 0.02},
    {"kind": "huge_body", "bytes": 3 << 20, "probability": 0.01},
    {"kind": "latency", "seconds": 0.4, "probability": 0.05},
    {"kind": "missing_result", "probability": 0.02},
]


class Blows:
    """What is done to the plant, drawn from the seed."""

    def __init__(self, plant: Plant, jobs: dict[str, int], rng: random.Random) -> None:
        self.plant = plant
        self.jobs = jobs
        self.rng = rng
        self.done: Counter[str] = Counter()
        self._expired: int | None = None

    def strike(self, name: str) -> None:
        self.done[name] += 1
        blow: Callable[[], None] = getattr(self, f"_{name}")
        blow()

    def _kill(self) -> None:
        self.plant.hit_lane(self.rng, signal.SIGKILL)

    def _term(self) -> None:
        self.plant.hit_lane(self.rng, signal.SIGTERM)

    def _flush(self) -> None:
        self.plant.flush()

    def _valkey(self) -> None:
        self.plant.restart_valkey(self.rng.uniform(0, 1.5))

    def _postgres_fast(self) -> None:
        self.plant.restart_postgres(SIGINT)

    def _postgres_crash(self) -> None:
        self.plant.restart_postgres(SIGQUIT)

    def _pause(self) -> None:
        """A person stops a job and goes on with it; the state may forbid either."""
        job = str(self.rng.choice(list(self.jobs.values())))
        self.plant.try_manage("control_job", job, "pause")
        self.plant.try_manage("control_job", job, "resume")

    def _budget(self) -> None:
        """Where it is used up, a person raises the budget of the messages and goes on."""
        job = str(self.jobs["send_text"])
        ((limit, reason),) = self.plant.sql(
            "select budget_limit, pause_reason from batches_job where id = %s", job
        )
        if reason == "budget":
            to = ("--to", str(limit + RAISE))
            self.plant.try_manage("control_job", job, "raise_budget", *to, "--reason", "drill")
            self.plant.try_manage("control_job", job, "resume")

    def _credential(self) -> None:
        """One account is logged out; at the next blow of this kind it is back."""
        if self._expired is None:
            guid = guid_of(self.rng.randrange(ACCOUNTS))
            self._expired = self.plant.gate.fail(kind="credential_expired", scope={"guid": guid})
            return
        self.plant.gate.heal(self._expired)
        self._expired = None
        for job in self.jobs.values():
            self.plant.try_manage("control_job", str(job), "resume")


#: every kind once, in some order, then these as often as the time allows
KINDS = ["kill", "term", "flush", "valkey", "postgres_fast", "postgres_crash", "pause",
         "budget", "credential", "kill", "credential", "budget"]  # fmt: skip


def guid_of(number: int) -> str:
    return f"16888590000{number:05d}"


def target_of(account: int, number: int) -> str:
    return f"788{account:05d}{number:08d}"


def write_csv(path: Path, header: list[str], rows: list[list[object]]) -> str:
    with path.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle)
        writer.writerow(header)
        writer.writerows(rows)
    return str(path)


def load(plant: Plant) -> dict[str, int]:
    """Accounts, one job of messages with a budget, one of tags with several targets a call."""
    accounts = [
        ["wecomapi", plant.gate.url, guid_of(n), f"account {n}", RATE + 30, 30, 2]
        for n in range(ACCOUNTS)
    ]
    header = ["gateway_kind", "gateway_url", "guid", "name", "total_rate_per_min",
              "online_reserve_per_min", "max_inflight"]  # fmt: skip
    plant.manage("load_accounts", write_csv(plant.folder / "accounts.csv", header, accounts))
    plant.sql("update batches_gateway set timeout_seconds = %s", TIMEOUT)
    rows: list[list[object]] = [
        [guid_of(a), target_of(a, n), f"name {n}"] for a in range(ACCOUNTS) for n in range(EACH)
    ]
    table = write_csv(plant.folder / "customers.csv", ["account", "target", "name"], rows)
    tough = ["--breaker-streak", "1000", "--breaker-ratio", "1"]
    words = {
        "send_text": ["--param", "content=hello {name}",
                      "--budget", str(BUDGET)],
        "tag_customers": ["--param", "tags=14001", "--call-size", "5"],
    }  # fmt: skip

    def create(operation: str) -> int:
        told = plant.manage("create_job", "--action", operation, "--csv", table, *words[operation],
                            *tough, "--start", "--json")  # fmt: skip
        return int(json.loads(told)["id"])

    with ThreadPoolExecutor() as both:
        return dict(zip(words, both.map(create, words), strict=True))


def test_everything_goes_wrong_and_every_target_is_reached_once_or_known(
    tmp_path: Path, tell: Callable[[str], None]
):
    rng = random.Random(SEED)
    with plant(tmp_path, lanes=2, seed=SEED, LANE_LEASE_SECONDS="4", LANE_TURN_SECONDS="10") as p:
        jobs = load(p)
        for fault in FAULTS:
            p.gate.fail(**fault)
        p.work()
        wait(lambda: p.gate.total() >= 20, 40, "the first sends", p.children)
        blows = Blows(p, jobs, rng)
        end = time.monotonic() + SECONDS
        order = rng.sample(KINDS, k=len(KINDS))
        pace = SECONDS / (len(order) + 2)
        while order or time.monotonic() < end:
            p.mend()
            time.sleep(rng.uniform(0.2, 1.0) * min(2.0, pace))
            blows.strike(order.pop() if order else rng.choice(KINDS))
        p.mend()
        wait(lambda: faults_fired(p) >= 20, 60, "faults enough", p.children)
        fired = faults_fired(p)
        see_through(p, jobs, blows)
        p.stop_lanes()
        judge(p, jobs, blows, fired, tell)


def see_through(p: Plant, jobs: dict[str, int], blows: Blows) -> None:
    """Calm again: a slow machine may not have come far, and what is judged has to have happened."""
    p.gate.heal()
    for job in jobs.values():
        p.try_manage("control_job", str(job), "resume")
    wait(lambda: budget_stops(p) >= 1, 60, "the budget in the way", p.children)
    blows.strike("budget")
    before = p.gate.total()
    wait(lambda: p.gate.total() >= before + 20, 60, "work goes on afterwards", p.children)
    sure = "select count(*) from batches_item where state = 'confirmed'"
    wait(lambda: p.sql(sure)[0][0] >= 200, 60, "confirmed enough to judge by", p.children)


def faults_fired(p: Plant) -> int:
    return sum(p.gate.fired().values())


def budget_stops(p: Plant) -> int:
    ((stops,),) = p.sql(
        "select count(*) from batches_event"
        " where kind = 'job.paused' and data->>'reason' = 'budget'"
    )
    return int(stops)


def judge(
    p: Plant, jobs: dict[str, int], blows: Blows, fired: int, tell: Callable[[str], None]
) -> None:
    """The gateway's own record against the database, once nothing is in flight any more."""
    in_flight = "select count(*) from batches_call where answered_at is null and lost_at is null"
    wait(lambda: p.sql(in_flight)[0][0] == 0, 20, "what was in flight is in doubt", p.children)
    effects = p.gate.effects()
    reached = Counter((e["operation"], e["guid"], e["target"]) for e in effects)
    names = {job: operation for operation, job in jobs.items()}
    states: dict[tuple[str, str, str], str] = {}
    for job, guid, target, state, doubt in p.sql(
        "select i.job_id, a.guid, i.target, i.state, i.in_doubt_at is not null from batches_item i "
        "join batches_shard s on s.id = i.shard_id join batches_account a on a.id = s.account_id"
    ):
        states[names[job], guid, target] = "in doubt" if doubt else state
    twice = {place for place, times in reached.items() if times > 1}
    lost = {place for place in reached if states[place] not in ("confirmed", "in doubt")}
    invented = {p for p, state in states.items() if state == "confirmed" and p not in reached}
    over, worst = over_budget(p), over_rate(effects)
    found = Counter(states.values())
    tell(
        f"faults drill: DRILL_SEED={SEED} DRILL_SECONDS={SECONDS:g} blows={dict(blows.done)} "
        f"faults={fired} sends={len(effects)} states={dict(found)} duplicates={len(twice)} "
        f"lost={len(lost)} invented={len(invented)} over={over} budget stops={budget_stops(p)} "
        f"worst window/allowed={worst:.2f}"
    )
    assert not twice, f"reached twice: {sorted(twice)[:5]}"
    assert not lost, f"took effect, and nobody knows: {[(x, states[x]) for x in sorted(lost)[:5]]}"
    assert not invented, f"confirmed without an effect: {sorted(invented)[:5]}"
    assert over == 0
    assert worst <= 1
    assert found["submitted"] == 0, "in flight although no lane lives"
    verified = p.children.run("verify", "--grace", "30")
    assert verified.returncode == 0, verified.stdout
    assert blows.done["kill"] >= 2
    assert blows.done["postgres_crash"] >= 1


def over_budget(p: Plant) -> int:
    """Sends beyond the budget, by the gateway's record and by the books."""
    ((limit, used),) = p.sql(
        "select budget_limit, budget_used from batches_job where budget_limit is not null"
    )
    sent = sum(effect["operation"] == "send_text" for effect in p.gate.effects())
    return max(0, sent - limit, used - limit, sent - used)


def over_rate(effects: list[dict[str, object]]) -> float:
    """The fullest 60 s of any account, as a share of what is allowed."""
    moments: dict[str, list[float]] = defaultdict(list)
    for effect in effects:
        moments[str(effect["guid"])].append(float(str(effect["ts"])))
    return max(worst_window(times) / RATE for times in moments.values())
