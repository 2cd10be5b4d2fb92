"""Which accounts a lane holds as work comes and goes."""

from __future__ import annotations

import time

import pytest

from batches.domain.states import JobStatus, ShardStatus
from batches.engine.lane import Turn
from batches.engine.state import LaneState, TurnOptions
from batches.models import Account, Shard
from batches.store import lanes
from batches.store.connections import connect
from tests.factories import ShardSpec, make_account, make_job
from tests.integration.store.support import run

pytestmark = pytest.mark.django_db(transaction=True)


def owned_after_tick(state: LaneState) -> set[int]:
    """One tick of the lane, which opens its turn on the first."""

    async def go() -> None:
        conn = await connect("test")
        try:
            if not state.lane:
                state.lane = await lanes.start_lane(conn, worker="test", lease=600.0)
            await Turn(options=state.options)._tick(conn, state)
        finally:
            await conn.close()

    run(go())
    return set(Account.objects.filter(lane_id=state.lane).values_list("pk", flat=True))


def open_state() -> LaneState:
    state = LaneState(lane=0, options=TurnOptions(lease=600.0), should_stop=lambda: False)
    state.lease_deadline = time.monotonic() + 600.0
    return state


def end_shards(*accounts: Account) -> None:
    Shard.objects.filter(account__in=accounts).update(
        pending=0, confirmed=2, status=ShardStatus.COMPLETED
    )


def test_tick_with_finished_accounts_keeps_those_that_have_work() -> None:
    accounts = [make_account() for _ in range(6)]
    make_job(status=JobStatus.RUNNING, shards=[ShardSpec(pending=2, account=a) for a in accounts])
    state = open_state()
    assert owned_after_tick(state) == {a.pk for a in accounts}
    end_shards(*accounts[3:])
    assert owned_after_tick(state) == {a.pk for a in accounts[:3]}
    assert set(state.accounts) == {a.pk for a in accounts[:3]}


def test_tick_with_one_finished_account_adopts_the_next_that_has_work() -> None:
    first, second = make_account(), make_account()
    make_job(status=JobStatus.RUNNING, shards=[ShardSpec(pending=2, account=first)])
    state = open_state()
    assert owned_after_tick(state) == {first.pk}
    end_shards(first)
    make_job(status=JobStatus.RUNNING, shards=[ShardSpec(pending=2, account=second)])
    assert owned_after_tick(state) == {second.pk}
    assert {shard.account_id for shard in state.shards.values()} == {second.pk}
