"""The clients of a gateway's gate: shared by processes, through flushes and outages."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import redis
from django.conf import settings

from batches.gates.errors import GateUnavailableError
from batches.gates.gateway import GatewayGate, SyncGate
from batches.gates.script import SPAN, TAKE, TOLERANCE, GateKeys, Grant

from .conftest import OwnServer
from .taker import GATEWAY

KEYS = GateKeys.of_gateway(GATEWAY)
FAST = 6_000  # a step of about 10 ms


async def take(
    gate: GatewayGate, n: int = 1, *, rate: int | None = FAST, most: int | None = None
) -> Grant:
    return await gate.take(GATEWAY, n, rate_per_min=rate, max_concurrent=most, token_ttl_ms=60_000)


async def open_gate(gate: GatewayGate, *, rate: int = FAST) -> None:
    """Get past the first step, which a server that remembers nothing makes everybody wait."""
    grant = await take(gate, 0, rate=rate)
    await asyncio.sleep(grant.wait_ms / 1000)


def test_processes_side_by_side_share_one_rate(gate_redis: redis.Redis) -> None:
    rate, seconds = 1_200, 3.0
    command = [sys.executable, "-m", "tests.integration.gates.taker", settings.REDIS_URL, str(rate)]
    takers = [
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
            env=os.environ | {"DJANGO_SETTINGS_MODULE": "tests.settings"},
        )
        for _ in range(4)
    ]
    assert [taker.stdout.readline() for taker in takers] == ["ready\n"] * 4
    until = f"{time.time() + seconds}\n"
    for taker in takers:
        taker.stdin.write(until)
        taker.stdin.flush()
    shares = [json.loads(taker.communicate(timeout=60)[0]) for taker in takers]
    assert [taker.returncode for taker in takers] == [0] * 4
    assert sum(bool(share) for share in shares) > 1, "nobody competed"
    # 1. every permit was given at its slot or up to the tolerance later …
    for asked, slot, heard in (permit for share in shares for permit in share):
        assert asked - TOLERANCE <= slot <= heard
    # 2. … and the slots of all of them are a step apart: of any minute and its margin none holds
    #    more than the rate
    slots = sorted(slot for share in shares for _, slot, _ in share)
    step = SPAN / rate
    assert all(after - before >= step for before, after in pairwise(slots))
    # 3. with somebody always asking, next to nothing is lost either
    assert slots[-1] - slots[0] > 2e6
    assert len(slots) >= 0.9 * (slots[-1] - slots[0]) / step


async def test_gateway_without_limits_is_not_asked_about() -> None:
    async with GatewayGate("redis://127.0.0.1:1/0") as gate:
        grant = await take(gate, 7, rate=None)
        assert (grant.granted, grant.wait_ms, grant.tokens) == (7, 0, ())
        await gate.release(GATEWAY, grant.tokens)
        await gate.give_back(GATEWAY, grant)


async def test_limits_changed_take_effect_at_the_next_call(gate_redis: redis.Redis) -> None:
    async with GatewayGate(settings.REDIS_URL) as gate:
        await open_gate(gate)
        assert (await take(gate, rate=1)).granted == 0
        first = await take(gate)
        assert first.granted == 1
        slow = await take(gate, rate=1)
        assert slow.granted == 0
        assert 60_000 <= slow.wait_ms <= SPAN / 1000
        await open_gate(gate)
        assert (await take(gate)).granted == 1


async def test_released_tokens_make_room_for_either_client(gate_redis: redis.Redis) -> None:
    async with GatewayGate(settings.REDIS_URL) as gate:
        mine = await take(gate, 2, rate=None, most=2)
        assert mine.granted == 2
        with SyncGate(settings.REDIS_URL) as other:
            limits = {"rate_per_min": None, "max_concurrent": 2, "token_ttl_ms": 60_000}
            assert other.take(KEYS, 1, **limits).granted == 0
            await gate.release(GATEWAY, mine.tokens)
            theirs = other.take(KEYS, 5, **limits)
            assert theirs.granted == 2
            other.release(KEYS, theirs.tokens[:1])
        assert (await take(gate, 5, rate=None, most=2)).granted == 1


async def test_unused_permits_are_for_the_next(gate_redis: redis.Redis) -> None:
    async with GatewayGate(settings.REDIS_URL) as gate:
        await open_gate(gate, rate=60)
        grant = await take(gate, rate=60, most=1)
        assert grant.granted == 1
        await gate.give_back(GATEWAY, grant)
        again = await take(gate, rate=60, most=1)
        assert again.granted == 1
        with SyncGate(settings.REDIS_URL) as other:
            other.give_back(KEYS, again)
        assert (await take(gate, rate=60, most=1)).granted == 1
        assert (await take(gate, rate=60, most=1)).granted == 0


async def test_flush_makes_everybody_wait_a_step(own_server: OwnServer) -> None:
    async with GatewayGate(own_server.url) as gate:
        await open_gate(gate, rate=60)
        assert (await take(gate, rate=60)).granted == 1
        with redis.Redis.from_url(own_server.url) as client:
            client.flushall()
        after = await take(gate, rate=60)
        assert after.granted == 0
        assert SPAN / 60 / 1000 <= after.wait_ms <= (SPAN / 60 + TOLERANCE) / 1000 + 1


async def test_restart_with_an_old_memory_makes_everybody_wait_a_step(
    own_server: OwnServer,
) -> None:
    """A server that forgot its scripts may have forgotten permits as well."""
    async with GatewayGate(own_server.url) as gate:
        await open_gate(gate, rate=60)
        with redis.Redis.from_url(own_server.url) as client:
            since = client.get("wecom_ops:{gate}:since")
            client.script_flush()
            assert client.script_exists(TAKE.sha) == [False]
            assert (await take(gate, rate=60)).granted == 0
            assert client.get("wecom_ops:{gate}:since") > since


async def test_outage_is_told_at_once_and_ends_by_itself(
    own_server: OwnServer, tmp_path: Path
) -> None:
    async with GatewayGate(own_server.url) as gate:
        held = await take(gate, 2, rate=None, most=2)
        own_server.stop()
        for _ in range(3):
            began = time.monotonic()
            with pytest.raises(GateUnavailableError, match=r"恢复之前不会发送。$"):
                await take(gate, rate=None, most=2)
            assert time.monotonic() - began < 2
        await gate.release(GATEWAY, held.tokens)  # says nothing
        await gate.give_back(GATEWAY, held)
        own_server.start(tmp_path)
        grant = await take(gate, 1, rate=None, most=2)
        assert grant.granted == 1


async def test_release_during_an_outage_is_handed_in_afterwards(gate_redis: redis.Redis) -> None:
    async with GatewayGate(settings.REDIS_URL) as gate:
        held = await take(gate, 2, rate=None, most=2)
        pool = gate._redis.connection_pool
        right = pool.connection_kwargs["port"]
        await pool.disconnect()
        pool.connection_kwargs["port"] = 1
        pool.reset()
        await gate.release(GATEWAY, held.tokens)
        assert gate_redis.zcard(KEYS.calls) == 2
        pool.connection_kwargs["port"] = right
        pool.reset()
        assert (await take(gate, 2, rate=None, most=2)).granted == 2


@pytest.fixture
def mute() -> Iterator[str]:
    """A server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken: list[socket.socket] = []

        def accept() -> None:
            try:
                while True:
                    taken.append(listener.accept()[0])
            except OSError:
                pass

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)
        for connection in taken:
            connection.close()


async def test_server_that_hangs_is_given_up_within_two_seconds(mute: str) -> None:
    async with GatewayGate(mute) as gate:
        began = time.monotonic()
        with pytest.raises(GateUnavailableError):
            await take(gate)
        assert time.monotonic() - began < 2
    with SyncGate(mute) as gate:
        began = time.monotonic()
        with pytest.raises(GateUnavailableError):
            gate.take(KEYS, 1, rate_per_min=60)
        assert time.monotonic() - began < 2
