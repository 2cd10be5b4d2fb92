"""One request for one POST, whatever the other side does; and what is known afterwards."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from batches.domain.categories import Category
from batches.domain.outcomes import NotSent, Unknown
from batches.engine import transport as module
from batches.engine.transport import Answer, Transport
from batches.gateways.base import HttpRequest

Script = Callable[["Peer"], Awaitable[None]]


class Peer:
    """One connection as the server sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def read_request(self) -> bytes | None:
        """The body of the next request; None at the end of the connection."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        length = next(
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        )
        return await self.reader.readexactly(length)

    async def write(self, data: bytes) -> None:
        with suppress(ConnectionError):
            self.writer.write(data)
            await self.writer.drain()

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


class Server:
    """Counts every request it reads; runs a script per connection."""

    def __init__(self, script: Callable[[Server, Peer], Awaitable[None]]) -> None:
        self._script = script
        self.requests: list[bytes] = []
        self.asked = asyncio.Event()
        self.connections = 0
        self.url = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        peer = Peer(reader, writer)
        try:
            await self._script(self, peer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def next(self, peer: Peer) -> bool:
        body = await peer.read_request()
        if body is not None:
            self.requests.append(body)
            self.asked.set()
        return body is not None


@asynccontextmanager
async def serving(
    script: Callable[[Server, Peer], Awaitable[None]],
) -> AsyncIterator[tuple[Server, Transport]]:
    server = Server(script)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(server.handle(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/send"
    try:
        async with Transport() as transport:
            yield server, transport
    finally:
        listener.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def post(url: str, body: bytes = b'{"n":1}', headers: dict[str, str] | None = None) -> HttpRequest:
    return HttpRequest("POST", url, {"Content-Type": "application/json", **(headers or {})}, body)


def ok(body: bytes = b"{}", extra: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\n" + extra + b"Content-Length: %d\r\n\r\n" % len(body) + body


async def send_one(script, *, within: float = 2.0, **more):
    """One POST; gives what came of it and how many requests the server saw."""
    async with serving(script) as (server, transport):
        got = await transport.post(post(server.url, **more), timeout=within)
        await asyncio.sleep(0.05)  # a repetition would arrive by now
        return got, server


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


# --- kept connections ----------------------------------------------------------------------------


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
