"""The online reserve: its own limiter, never the batch rate, and the gateway's permit with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import redis
from django.conf import settings

from batches.gates.gateway import SyncGate
from batches.gates.online import PATIENCE, Closed, Gate, Limits, OnlineGate, Permit
from batches.gates.script import SINCE, SPAN, GateKeys

from .conftest import clock

LIMITS = Limits(
    account_id=5_000_001,
    online_reserve_per_min=6,
    gateway_id=5_000_002,
    gateway_rate_per_min=None,
    gateway_max_concurrent=None,
)
ONLINE = GateKeys.of_account_online(LIMITS.account_id)
GATEWAY = GateKeys.of_gateway(LIMITS.gateway_id)
TTL = 60_000


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def gate(gate_redis: redis.Redis, slept: list[float]) -> Iterator[OnlineGate]:
    """A server that has been up for an hour."""
    with OnlineGate(settings.REDIS_URL, sleep=slept.append) as gate:
        gate.take(LIMITS, token_ttl_ms=TTL)  # loads the script
        gate_redis.delete(ONLINE.last)
        gate_redis.set(SINCE, clock(gate_redis) - 3_600_000_000)
        yield gate


def test_reserve_of_zero_is_closed_for_good(gate: OnlineGate) -> None:
    closed = gate.take(replace(LIMITS, online_reserve_per_min=0), token_ttl_ms=TTL)
    assert closed == Closed(Gate.RESERVE)


def test_reserve_used_up_tells_the_seconds(gate: OnlineGate) -> None:
    assert isinstance(gate.take(LIMITS, token_ttl_ms=TTL), Permit)
    closed = gate.take(LIMITS, token_ttl_ms=TTL)
    assert isinstance(closed, Closed)
    assert closed.gate is Gate.ONLINE
    assert SPAN / 6 / 1e6 - 1 < closed.seconds <= SPAN / 6 / 1e6


def test_accounts_have_reserves_of_their_own(gate: OnlineGate) -> None:
    assert isinstance(gate.take(LIMITS, token_ttl_ms=TTL), Permit)
    assert isinstance(gate.take(replace(LIMITS, account_id=5_000_009), token_ttl_ms=TTL), Permit)


def test_closed_reserve_costs_the_gateway_nothing(
    gate: OnlineGate, gate_redis: redis.Redis
) -> None:
    limits = replace(LIMITS, gateway_rate_per_min=600, gateway_max_concurrent=5)
    permit = gate.take(limits, token_ttl_ms=TTL)
    assert isinstance(permit, Permit)
    assert gate_redis.zrange(GATEWAY.calls, 0, -1) == list(permit.tokens)
    before = gate_redis.get(GATEWAY.last)
    assert isinstance(gate.take(limits, token_ttl_ms=TTL), Closed)
    assert gate_redis.get(GATEWAY.last) == before
    gate.release(permit)
    assert gate_redis.zcard(GATEWAY.calls) == 0


def test_full_gateway_is_told_and_costs_the_reserve_nothing(
    gate: OnlineGate, gate_redis: redis.Redis, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("batches.gates.online.time.monotonic", lambda: now[0])
    gate._sleep = lambda seconds: (slept.append(seconds), now.__setitem__(0, now[0] + seconds))
    limits = replace(LIMITS, gateway_max_concurrent=1)
    with SyncGate(settings.REDIS_URL) as lane:
        held = lane.take(GATEWAY, 1, rate_per_min=None, max_concurrent=1, token_ttl_ms=TTL)
        closed = gate.take(limits, token_ttl_ms=TTL)
        assert isinstance(closed, Closed)
        assert closed.gate is Gate.GATEWAY
        assert PATIENCE - 0.1 < sum(slept) <= PATIENCE, "it waits for a busy lane, but not long"
        assert gate_redis.get(ONLINE.last) is None
        lane.release(GATEWAY, held.tokens)
    assert isinstance(gate.take(limits, token_ttl_ms=TTL), Permit)


def test_reserve_taken_by_another_meanwhile_gives_the_gateway_permit_back(
    gate: OnlineGate, gate_redis: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = replace(LIMITS, gateway_rate_per_min=60, gateway_max_concurrent=2)
    of_gateway = gate._take_of_gateway

    def and_another(limits: Limits, ttl: int) -> object:
        with SyncGate(settings.REDIS_URL) as other:
            assert other.take(ONLINE, 1, rate_per_min=6).granted == 1
        return of_gateway(limits, ttl)

    monkeypatch.setattr(gate, "_take_of_gateway", and_another)
    closed = gate.take(limits, token_ttl_ms=TTL)
    assert isinstance(closed, Closed)
    assert closed.gate is Gate.ONLINE
    assert gate_redis.zcard(GATEWAY.calls) == 0
    with SyncGate(settings.REDIS_URL) as lane:
        assert lane.take(GATEWAY, 1, rate_per_min=60).granted == 1
