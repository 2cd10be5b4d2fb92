"""A gateway that answers at once: a constant success, as light as a server can be.

It runs beside the lane on the same cores, so whatever it costs is taken from what is measured.

    python -m benchmarks.gateway [--record]    prints its port, then serves until it is ended

`GET /record` gives the moment (monotonic clock of the machine) and the account of each send.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from typing import Any

import uvloop

BODY = b'{"code":0,"msg":"ok","data":{"isSendSuccess":1,"msgUniqueIdentifier":"m-7f3a91c05d"}}'
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=utf-8\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
)
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_GUID = re.compile(rb'"guid": ?"([^"]*)"')

record: list[tuple[float, bytes]] = []


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, *, recording: bool) -> None:
        self._recording = recording
        self._buffer = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        data = self._buffer + data
        while (end := data.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(data, 0, end)
            stop = end + 4 + (int(length[1]) if length else 0)
            if len(data) < stop:
                break
            if data.startswith(b"GET /record"):
                told = b"".join(b"%f %s\n" % line for line in record)
                self._transport.write(
                    b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(told), told)
                )
            else:
                if self._recording and (guid := _GUID.search(data, end, stop)):
                    record.append((time.monotonic(), guid[1]))
                self._transport.write(ANSWER)
            data = data[stop:]
        self._buffer = data


async def serve(*, recording: bool) -> None:
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(recording=recording), "127.0.0.1", 0, backlog=4096
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(recording="--record" in sys.argv))
