"""Rates in virtual time: the gates' schedules are shifted instead of waiting for them.

Every send is claimed for real; the time between two is skipped by moving `gate_at` (and the
job's `rate_at`) back by it. So minutes of sending at any rate pass in a second.
"""

from __future__ import annotations

import random
import statistics
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from batches.models import Account, Item, Job
from batches.store import claim as claim_store
from batches.store.connections import Connection
from tests.factories import ShardSpec, make_account, make_job, make_lane

from .support import claim_async, connected, own, run, scope

pytestmark = pytest.mark.django_db(transaction=True)

Delay = Callable[[float, random.Random], float]
#: when within its slack a send leaves: as lanes do, or as an enemy would
DELAYS: dict[str, Delay] = {
    "random": lambda slack, rng: rng.uniform(0.0, slack),
    "at once": lambda _slack, _rng: 0.0,
    "as late as may be": lambda slack, _rng: slack,
    "late then early": lambda slack, rng: slack if rng.random() < 0.5 else 0.0,
}


class Clock:
    """The database's time plus all that was skipped."""

    def __init__(self) -> None:
        self._skipped = 0.0
        self._began = time.monotonic()

    def now(self) -> float:
        return time.monotonic() - self._began + self._skipped

    async def skip(self, conn: Connection, seconds: float) -> None:
        if seconds <= 0:
            return
        self._skipped += seconds
        for table, column in (("account", "gate_at"), ("job", "rate_at")):
            await conn.execute(
                f"update batches_{table} set {column} = {column} - %s * interval '1 second'",
                [seconds],
            )


def most_in_a_minute(moments: list[float]) -> int:
    """The most sends that any window of 60 s holds."""
    return max(bisect_left(moments, start + 60.0) - n for n, start in enumerate(moments))


def send_for(
    account: Account,
    job: Job,
    *,
    sends: int,
    delay: Delay,
    sizes: Callable[[random.Random], int] | None = None,
    throttles: Sequence[float] = (),
) -> list[float]:
    """Send as a lane would for one account; the moments of all targets."""
    rng = random.Random(5)
    clock = Clock()
    items = list(Item.objects.filter(job_id=job.pk).order_by("seq").values_list("pk", flat=True))
    of = scope(items)
    moments: list[float] = []

    async def go() -> None:
        async with connected() as (conn,):
            at = 0
            while at < sends:
                size = sizes(rng) if sizes else 1
                result = await claim_async(
                    conn=conn,
                    lane=account.lane_id,
                    items=items[at : at + size],
                    of=of,
                    size=size,
                )
                moments.extend([clock.now()] * len(result.claimed))
                at += len(result.claimed)
                gate = result.gates[account.pk]
                if throttles:
                    await conn.execute(
                        "update batches_account set throttle = %s", [rng.choice(throttles)]
                    )
                await clock.skip(conn, gate.due_in + delay(gate.slack, rng))

    run(go())
    return moments


def paced_job(per_min: int, items: int, **columns) -> tuple[Account, Job]:
    account = make_account()
    job = make_job(shards=[ShardSpec(pending=items, account=account)], **columns)
    own(make_lane(), job, per_min=per_min)
    account.refresh_from_db()
    return account, job


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("per_min", [1, 7, 20, 60])
def test_account_gate_any_jitter_never_exceeds_the_rate_in_any_minute(per_min, delay):
    sends = min(3 * per_min + 3, 125)
    account, job = paced_job(per_min, sends)
    moments = send_for(account, job, sends=sends, delay=DELAYS[delay])
    assert len(moments) == sends
    assert most_in_a_minute(moments) <= per_min


@pytest.mark.parametrize("per_min", [1, 7, 60])
def test_account_gate_reaches_nearly_all_that_is_allowed(per_min):
    sends = 2 * per_min + 20
    account, job = paced_job(per_min, sends)
    moments = send_for(account, job, sends=sends, delay=DELAYS["random"])
    achieved = (sends - 1) / (moments[-1] - moments[0]) * 60
    assert 0.945 * per_min <= achieved <= per_min


def test_account_gate_gaps_are_random_not_a_beat():
    account, job = paced_job(60, 200)
    moments = send_for(account, job, sends=200, delay=DELAYS["random"])
    gaps = [b - a for a, b in pairwise(moments)]
    assert statistics.pstdev(gaps) / statistics.fmean(gaps) >= 0.2


def test_account_gate_counts_the_reserve_out_of_the_total():
    account, job = paced_job(60, 100)
    Account.objects.update(online_reserve_per_min=40)
    moments = send_for(account, job, sends=60, delay=DELAYS["late then early"])
    assert most_in_a_minute(moments) <= 20


@pytest.mark.parametrize("delay", DELAYS)
def test_account_gate_calls_of_several_targets_count_each_target(delay):
    account, job = paced_job(20, 120)
    moments = send_for(account, job, sends=100, delay=DELAYS[delay], sizes=lambda _rng: 6)
    assert most_in_a_minute(moments) <= 20


@pytest.mark.parametrize("delay", DELAYS)
def test_account_gate_calls_of_changing_size_never_exceed_the_rate(delay):
    account, job = paced_job(20, 200)
    moments = send_for(
        account,
        job,
        sends=120,
        delay=DELAYS[delay],
        sizes=lambda rng: rng.choice([1, 1, 1, 4, 7, 20]),
    )
    assert most_in_a_minute(moments) <= 20


def test_account_gate_throttled_and_recovered_never_exceeds_the_rate():
    """The pace changes under way, as after a rate refusal and its recovery."""
    account, job = paced_job(30, 120)
    moments = send_for(
        account,
        job,
        sends=60,
        delay=DELAYS["late then early"],
        throttles=[0.05, 0.25, 0.5, 0.75, 1.0],
    )
    assert most_in_a_minute(moments) <= 30


@pytest.mark.parametrize("per_min", [1, 10, 90])
def test_job_ceiling_over_many_accounts_is_kept_in_any_minute(per_min):
    """Accounts fast enough that only the job's own ceiling is in the way."""
    lane = make_lane()
    sends = min(3 * per_min + 3, 190)
    accounts = [make_account() for _ in range(5)]
    job = make_job(
        shards=[ShardSpec(pending=sends // 5 + 1, account=a) for a in accounts],
        rate_limit_per_min=per_min,
    )
    own(lane, job)
    items = list(Item.objects.filter(job_id=job.pk).order_by("seq").values_list("pk", flat=True))
    of = scope(items)
    clock = Clock()
    moments: list[float] = []
    rng = random.Random(11)

    async def go() -> None:
        left = list(items)
        async with connected() as (conn,):
            while len(moments) < sends:
                result = await claim_async(conn=conn, lane=lane.pk, items=left[:5], of=of)
                taken = {c.item_id for c in result.claimed}
                moments.extend([clock.now()] * len(taken))
                left = [i for i in left if i not in taken]
                room = (await claim_store.job_room(conn, [job.pk]))[job.pk]
                await clock.skip(conn, room.rate_in * rng.choice([0.3, 1.0, 1.0, 1.7]))

    run(go())
    assert most_in_a_minute(moments) <= per_min
    assert (len(moments) - 1) / max(moments[-1] - moments[0], 1e-9) * 60 <= per_min * 1.001
