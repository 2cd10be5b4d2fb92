"""A lane's dealings with the gates: what it does not use is there for others."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import redis
from django.conf import settings

from batches.engine.admission import ASK_AGAIN, Admission
from batches.engine.plan import GatewayPlan
from batches.gates.script import SINCE, GateKeys
from batches.gateways.base import GatewayConfig, Operation
from batches.gateways.wecomapi import WecomApiGateway

from .conftest import clock

GATEWAY = 6_000_001
KEYS = GateKeys.of_gateway(GATEWAY)


class Several(WecomApiGateway):
    """Takes fifty targets a call."""

    def max_targets(self, config: GatewayConfig, operation: Operation) -> int:
        return 50


def plan(*, rate: int | None = None, most: int | None = None) -> GatewayPlan:
    config = GatewayConfig("wecomapi", "http://127.0.0.1:9")
    return GatewayPlan(GATEWAY, Several(), config, 5.0, rate_limit=rate, max_concurrent=most)


@pytest.fixture
async def admission(gate_redis: redis.Redis) -> AsyncIterator[Admission]:
    """A server that has been up for an hour."""
    admission = Admission(settings.REDIS_URL)
    await admission.admit(plan(rate=600), [])
    gate_redis.set(SINCE, clock(gate_redis) - 3_600_000_000)
    yield admission
    await admission.aclose()


async def test_gateway_without_limits_admits_all_with_redis_away() -> None:
    admission = Admission("redis://127.0.0.1:1/0")
    permits, wait = await admission.admit(plan(), [1, 1, 50])
    assert (permits.calls, wait, permits.tokens) == (3, 0.0, ())
    await permits.use(1, 1)
    assert permits.calls == 1
    assert not admission.away
    await admission.aclose()


async def test_redis_away_admits_none_and_says_so() -> None:
    admission = Admission("redis://127.0.0.1:1/0")
    permits, wait = await admission.admit(plan(rate=600), [1])
    assert (permits.calls, wait) == (0, ASK_AGAIN)
    assert admission.away
    await admission.aclose()


async def test_redis_away_is_logged_without_the_credentials_of_the_gateway(
    caplog: pytest.LogCaptureFixture,
) -> None:
    admission = Admission("redis://127.0.0.1:1/0")
    config = GatewayConfig("wecomapi", "https://user:geheim@gw.example.com:8443/x?key=geheim")
    await admission.admit(GatewayPlan(GATEWAY, Several(), config, 5.0, rate_limit=600), [1])
    await admission.aclose()
    assert "calls to gw.example.com:8443 hold" in caplog.text
    assert "geheim" not in caplog.text


async def test_call_of_many_targets_goes_although_they_are_never_due_at_once(
    admission: Admission,
) -> None:
    permits, wait = await admission.admit(plan(rate=600), [50, 50])
    assert permits.calls == 1
    assert 4.9 < wait < 6


async def test_places_of_calls_that_were_not_made_are_free_again(
    admission: Admission, gate_redis: redis.Redis
) -> None:
    gateway = plan(rate=60_000, most=3)
    permits, _ = await admission.admit(gateway, [1, 1, 1])
    assert permits.calls == 3
    await permits.use(1, 1)
    assert gate_redis.zrange(KEYS.calls, 0, -1) == list(permits.tokens)
    assert len(permits.tokens) == 1
    admission.ended(gateway, permits.tokens[0])
    await admission.hand_back()
    assert gate_redis.zcard(KEYS.calls) == 0


async def test_rate_of_calls_that_were_not_made_is_there_for_others(
    admission: Admission,
) -> None:
    gateway = plan(rate=60)
    permits, _ = await admission.admit(gateway, [1])
    await permits.use(0, 0)
    again, _ = await admission.admit(gateway, [1])
    assert again.calls == 1
    assert (await admission.admit(gateway, [1]))[0].calls == 0


async def test_large_call_made_where_a_small_one_was_not_is_paid_in_full(
    admission: Admission, gate_redis: redis.Redis
) -> None:
    gateway = plan(rate=60_000, most=9)
    permits, _ = await admission.admit(gateway, [1, 1, 50])
    assert permits.calls == 3
    before = gate_redis.get(KEYS.last)
    await permits.use(1, 50)  # the last of them
    assert gate_redis.get(KEYS.last) == before, "its fifty targets stay on the schedule"
    assert len(permits.tokens) == 1
    assert gate_redis.zcard(KEYS.calls) == 1
