"""One request for one POST, whatever the other side does; and what is known afterwards."""

from __future__ import annotations

import asyncio
import gzip
import socket
from contextlib import suppress

import pytest

from batches.domain.categories import Category
from batches.domain.outcomes import NotSent, Unknown
from batches.engine import transport as module
from batches.engine.transport import Answer, Transport

from .peer import ok, post, send_one, serving

# --- answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 400, 404, 429, 500, 503])
async def test_post_answered_gives_status_headers_and_body(status):
    async def script(server, peer):
        while await server.next(peer):
            await peer.write(
                b"HTTP/1.1 %d X\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\nhi" % status
            )

    got, server = await send_one(script)
    assert got == Answer(status, {"Retry-After": "7", "Content-Length": "2"}, b"hi")
    assert len(server.requests) == 1


async def test_post_chunked_and_compressed_answer_is_read_to_its_end():
    body = gzip.compress(b'{"code":0}' * 1000)

    async def script(server, peer):
        await server.next(peer)
        await peer.write(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n\r\n"
        )
        for at in range(0, len(body), 10):
            part = body[at : at + 10]
            await peer.write(b"%x\r\n" % len(part) + part + b"\r\n")
        await peer.write(b"0\r\n\r\n")

    got, _ = await send_one(script)
    assert isinstance(got, Answer)
    assert got.body == b'{"code":0}' * 1000


async def test_post_many_in_a_row_reuse_the_connection():
    async def script(server, peer):
        while await server.next(peer):
            await peer.write(ok())

    async with serving(script) as (server, transport):
        for n in range(20):
            assert isinstance(await transport.post(post(server.url, b"%d" % n), timeout=2), Answer)
        assert server.connections == 1
        assert server.requests == [b"%d" % n for n in range(20)]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_post_redirected_is_not_followed(status):
    async def script(server, peer):
        while await server.next(peer):
            await peer.write(
                b"HTTP/1.1 %d Moved\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n"
                % (status, server.url.encode())
            )

    got, server = await send_one(script)
    assert isinstance(got, Answer)
    assert got.status == status
    assert len(server.requests) == 1


# --- never sent ----------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/",
        "https://127.0.0.1:{port}/",
        "http://no-such-host.invalid/",
        "http://:80/",
        "ftp://127.0.0.1/",
    ],
)
async def test_post_where_nobody_listens_was_not_sent(url):
    async with Transport() as transport:
        got = await transport.post(post(url.format(port=free_port())), timeout=3)
    assert isinstance(got, NotSent)
    assert got.category is Category.UNREACHABLE


async def test_post_tls_handshake_fails_was_not_sent():
    async def script(server, peer):
        await peer.reader.read(100)
        await peer.write(b"HTTP/1.1 400 this is no TLS\r\n\r\n")

    async with serving(script) as (server, transport):
        got = await transport.post(post(server.url.replace("http:", "https:")), timeout=3)
    assert isinstance(got, NotSent)


async def test_post_connection_is_not_taken_in_time_was_not_sent(monkeypatch):
    monkeypatch.setattr(module, "CONNECT_TIMEOUT", 0.2)
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(0)
        port = sock.getsockname()[1]
        fillers = []
        for _ in range(4):  # the backlog is full: further connections get no answer
            filler = socket.socket()
            filler.setblocking(False)
            with suppress(BlockingIOError):
                filler.connect(("127.0.0.1", port))
            fillers.append(filler)
        async with Transport() as transport:
            got = await transport.post(post(f"http://127.0.0.1:{port}/"), timeout=3)
        for filler in fillers:
            filler.close()
    assert isinstance(got, NotSent)


# --- nobody knows --------------------------------------------------------------------------------


async def close_at_once(server, peer):
    await server.next(peer)


async def reset_at_once(server, peer):
    await server.next(peer)
    peer.reset()


async def hang(server, peer):
    await server.next(peer)
    await asyncio.sleep(60)


async def half_of_the_head(server, peer):
    await server.next(peer)
    await peer.write(b"HTTP/1.1 200 OK\r\nContent-")


async def half_of_the_body(server, peer):
    await server.next(peer)
    await peer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")


async def reset_in_the_body(server, peer):
    await server.next(peer)
    await peer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
    await asyncio.sleep(0.05)
    peer.reset()


async def drip_the_head(server, peer):
    await server.next(peer)
    for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}":
        await peer.write(bytes((byte,)))
        await asyncio.sleep(0.1)


async def drip_the_body(server, peer):
    await server.next(peer)
    await peer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    for _ in range(1000):
        await peer.write(b"x")
        await asyncio.sleep(0.05)


async def no_http(server, peer):
    await server.next(peer)
    await peer.write(b"\x00\xff<<not http>>\r\n\r\n")


async def bad_chunks(server, peer):
    await server.next(peer)
    await peer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n")


async def bad_gzip(server, peer):
    await server.next(peer)
    await peer.write(ok(b"this is not gzip", b"Content-Encoding: gzip\r\n"))


async def endless_headers(server, peer):
    await server.next(peer)
    await peer.write(b"HTTP/1.1 200 OK\r\n")
    for n in range(20_000):
        await peer.write(b"X-%d: y\r\n" % n)


async def huge_body(server, peer):
    await server.next(peer)
    await peer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (64 << 20))
    for _ in range(64):
        await peer.write(b"A" * (1 << 20))


async def huge_chunked_body(server, peer):
    await server.next(peer)
    await peer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(64):
        await peer.write(b"100000\r\n" + b"A" * 0x100000 + b"\r\n")


async def bomb(server, peer):
    await server.next(peer)
    await peer.write(ok(gzip.compress(b"\0" * (8 << 20), 1), b"Content-Encoding: gzip\r\n"))


@pytest.mark.parametrize(
    ("script", "category"),
    [
        (close_at_once, Category.RESET),
        (reset_at_once, Category.RESET),
        (hang, Category.TIMEOUT),
        (half_of_the_head, Category.RESET),
        (half_of_the_body, Category.UNREADABLE),
        (reset_in_the_body, None),
        (drip_the_head, Category.TIMEOUT),
        (drip_the_body, Category.TIMEOUT),
        (no_http, None),
        (bad_chunks, None),
        (bad_gzip, None),
        (endless_headers, None),
        (huge_body, Category.UNREADABLE),
        (huge_chunked_body, Category.UNREADABLE),
        (bomb, Category.UNREADABLE),
    ],
)
async def test_post_without_a_whole_answer_is_unknown_and_sent_once(script, category):
    got, server = await send_one(script, within=0.6)
    assert isinstance(got, Unknown), got
    assert category is None or got.category is category, got
    assert len(server.requests) == 1


async def test_post_reset_before_the_request_was_read_is_unknown():
    """The client may have written all of it; that nobody read it cannot be known here."""

    async def script(server, peer):
        peer.reset()

    got, _ = await send_one(script, body=b"x" * 4_000_000)
    assert isinstance(got, Unknown)


async def test_post_cancelled_while_waiting_raises_and_leaves_one_request():
    async with serving(hang) as (server, transport):
        task = asyncio.create_task(transport.post(post(server.url), timeout=30))
        await server.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.05)
        assert len(server.requests) == 1
