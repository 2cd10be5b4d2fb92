"""The last look before a request's first byte, and permits that are not used."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from batches.domain.categories import Category
from batches.domain.outcomes import NotSent
from batches.engine import claiming
from batches.engine import transport as carrier
from batches.engine.admission import Admission, Permits
from batches.engine.claiming import Claimer
from batches.engine.picking import Pick
from batches.engine.plan import AccountPlan, GatewayPlan, PlannedItem, ShardPlan
from batches.engine.sending import PROMPT, Flight, fly
from batches.engine.state import LaneState, TurnOptions
from batches.engine.transport import Answer
from batches.gates.errors import GateUnavailableError
from batches.gateways.base import GatewayConfig, Operation, TargetSpec
from batches.gateways.wecomapi import WecomApiGateway

from .peer import ok, post, serving

SUCCESS = ok(b'{"code": 0, "data": {"isSendSuccess": 1}}')


async def answers(server: Any, peer: Any) -> None:
    while await server.next(peer):
        await peer.write(SUCCESS)


def flight_to(url: str, **fields: Any) -> Flight:
    compiled = SimpleNamespace(
        operation=Operation.SEND_TEXT, to_target=lambda target, _row: TargetSpec(target, "hello")
    )
    config = GatewayConfig("wecomapi", url.removesuffix("/send"), "path")
    account = AccountPlan(1, "guid", 1, 1)
    values: dict[str, Any] = {
        "call_id": 1,
        "items": (PlannedItem(1, 1, "t1", []),),
        "attempts": (1,),
        "job": SimpleNamespace(
            job_id=1, max_attempts=3, waits_for_confirmation=False, compiled=compiled
        ),
        "account": account,
        "gateway": GatewayPlan(1, WecomApiGateway(), config, 5.0),
        "claimed_at": time.monotonic(),
    }
    return Flight(**(values | fields))


async def test_post_whose_door_is_shut_writes_nothing_and_keeps_the_connection() -> None:
    async with serving(answers) as (server, transport):
        shut = await transport.post(post(server.url), door=lambda: False, timeout=2)
        assert shut == NotSent(Category.LOST, "held back at the last moment")
        assert isinstance(
            await transport.post(post(server.url), door=lambda: True, timeout=2), Answer
        )
        assert len(server.requests) == 1
        assert server.connections == 1


@pytest.mark.parametrize(
    ("permit_in", "may_send", "sent"),
    [(None, True, 1), (60.0, True, 1), (-0.1, True, 0), (None, False, 0)],
)
async def test_flight_leaves_only_with_a_lease_and_a_permit_that_are_still_good(
    permit_in: float | None, may_send: bool, sent: int
) -> None:
    async with serving(answers) as (server, transport):
        until = None if permit_in is None else time.monotonic() + permit_in
        settled = await fly(
            flight_to(server.url, permit_until=until),
            transport,
            may_send=lambda: may_send,
            rng=random.Random(1),
        )
        assert len(server.requests) == sent
    (decision,) = settled.decisions
    assert decision.outcome == ("accepted" if sent else "not_sent")
    if not sent:
        assert (decision.refund, decision.counted, decision.bad, decision.hold) == (
            True,
            False,
            False,
            0.0,
        )


async def test_flight_whose_connection_takes_long_reports_the_delay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The request leaves when the connection is there; the account's gate has to know."""
    connect = carrier.aiohttp.TCPConnector.connect

    async def slow(self: Any, *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(PROMPT + 0.4)
        return await connect(self, *args, **kwargs)

    monkeypatch.setattr(carrier.aiohttp.TCPConnector, "connect", slow)
    async with serving(answers) as (server, transport):
        settled = await fly(
            flight_to(server.url), transport, may_send=lambda: True, rng=random.Random(1)
        )
    assert settled.late >= 0.4


def limited() -> GatewayPlan:
    return GatewayPlan(
        1, WecomApiGateway(), GatewayConfig("wecomapi", "http://127.0.0.1:9"), 5.0, rate_limit=600
    )


async def test_admission_with_redis_away_asks_once_for_all_gateways(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admission = Admission("redis://127.0.0.1:1/0")
    asked = []

    async def take(*args: Any, **kwargs: Any) -> Any:
        asked.append(args)
        raise GateUnavailableError("away")

    monkeypatch.setattr(admission._gate, "take", take)
    for _ in range(5):
        permits, wait = await admission.admit(limited(), [1])
        assert permits.calls == 0
        assert 0 < wait <= 1.0
    assert len(asked) == 1
    await admission.aclose()


async def test_claim_that_fails_gives_its_permits_back(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = limited()
    account = AccountPlan(1, "guid", 1, 1)
    shard = ShardPlan(1, 1, 1, buffer=deque())
    pick = Pick(account, shard, SimpleNamespace(), gateway, 1, [PlannedItem(1, 1, "t", [])])  # type: ignore[arg-type]
    used: list[tuple[int, int]] = []

    class Counted(Permits):
        async def use(self, calls: int, sends: int) -> None:
            used.append((calls, sends))

    class Gate:
        away = False

        async def hand_back(self) -> None: ...

        async def admit(self, *_: Any) -> tuple[Permits, float]:
            return Counted(None, gateway, [1]), 0.0  # type: ignore[arg-type]

    async def broken(*_: Any, **__: Any) -> Any:
        raise psycopg.OperationalError("deadlock detected")

    async def recovered() -> None: ...

    monkeypatch.setattr(claiming.store, "claim", broken)
    state = LaneState(lane=1, options=TurnOptions(), should_stop=lambda: False)
    claimer = Claimer(state, None, Gate())  # type: ignore[arg-type]
    claimer._conn = object()  # type: ignore[assignment]
    monkeypatch.setattr(claimer, "_recover", recovered)
    await claimer._claim([pick])
    assert used == [(0, 0)]
    assert [item.item_id for item in shard.buffer] == [1]
