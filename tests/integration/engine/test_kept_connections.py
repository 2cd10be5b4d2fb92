"""Connections kept between requests: none is repeated on them, none takes another one's answer."""

from __future__ import annotations

import asyncio

import pytest

from batches.domain.outcomes import Unknown
from batches.engine import transport as module
from batches.engine.transport import Answer

from .peer import ok, post, serving


@pytest.mark.parametrize("how", ["fin", "reset"])
async def test_post_on_a_connection_closed_while_idle_is_answered_on_a_fresh_one(how):
    """A gateway that closes an idle connection must not put an item in doubt for nothing."""

    async def script(server, peer):
        await server.next(peer)
        await peer.write(ok())
        await asyncio.sleep(0.05)
        if how == "reset":
            peer.reset()

    async with serving(script) as (server, transport):
        for _ in range(3):
            assert isinstance(await transport.post(post(server.url), timeout=2), Answer)
            await asyncio.sleep(0.15)
        assert server.connections == 3
        assert len(server.requests) == 3


@pytest.mark.parametrize("how", ["fin", "reset"])
async def test_post_stale_connection_closed_on_the_second_request_is_not_repeated(how):
    """The connection dies only once the request is on it: an HTTP client that repeated the POST
    by itself would send twice."""

    async def script(server, peer):
        await server.next(peer)
        await peer.write(ok())
        await server.next(peer)
        if how == "reset":
            peer.reset()

    async with serving(script) as (server, transport):
        assert isinstance(await transport.post(post(server.url, b"1"), timeout=2), Answer)
        got = await transport.post(post(server.url, b"2"), timeout=2)
        await asyncio.sleep(0.1)
        assert isinstance(got, Unknown)
        assert server.requests == [b"1", b"2"]
        assert server.connections == 1


async def test_post_idle_connection_is_closed_by_us_before_the_gateway_would(monkeypatch):
    monkeypatch.setattr(module, "KEEPALIVE", 0.2)

    async def script(server, peer):
        while await server.next(peer):
            await peer.write(ok())

    async with serving(script) as (server, transport):
        await transport.post(post(server.url), timeout=2)
        await asyncio.sleep(0.5)
        await transport.post(post(server.url), timeout=2)
        assert server.connections == 2


async def test_post_answer_nobody_asked_for_is_not_taken_for_the_next_ones():
    """A proxy that answers twice leaves an answer on the idle connection: it belongs to nobody."""

    async def script(server, peer):
        await server.next(peer)
        await peer.write(ok(b"one"))
        await asyncio.sleep(0.1)
        await peer.write(ok(b"one again"))
        while await server.next(peer):
            await peer.write(ok(b"two"))

    async with serving(script) as (server, transport):
        first = await transport.post(post(server.url), timeout=2)
        await asyncio.sleep(0.3)
        second = await transport.post(post(server.url), timeout=2)
        assert isinstance(first, Answer)
        assert first.body == b"one"
        assert not isinstance(second, Answer) or second.body != b"one again"
        assert len(server.requests) <= 2


async def test_post_two_answers_at_once_the_second_is_not_taken_for_the_next_ones():
    async def script(server, peer):
        await server.next(peer)
        extra = ok(b"one again") if server.connections == 1 else b""
        await peer.write(ok(b"one") + extra)
        while await server.next(peer):
            await peer.write(ok(b"two"))

    async with serving(script) as (server, transport):
        await transport.post(post(server.url), timeout=2)
        second = await transport.post(post(server.url), timeout=2)
        assert not isinstance(second, Answer) or second.body != b"one again"
