"""A raw server that counts the requests it reads, and says what a script tells it."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from batches.engine.transport import Transport
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
