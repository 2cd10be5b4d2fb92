"""How each fault looks on the wire."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress

from aiohttp import web

from . import wire
from .faults import Fault

_CHUNK = b"A" * 65536
_POLL_SECONDS = 0.2


def refuse_http(wording: str, retry_after: float | None) -> web.Response:
    """A rate refusal: HTTP 429, or the code in an HTTP 200."""
    if wording == "http_429":
        headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
        return web.Response(
            status=429,
            headers=headers,
            body=wire.answer(429, "请求过于频繁"),
            content_type="application/json",
        )
    code = int(wording)
    return _json(wire.answer(code, wire.MESSAGES.get(code, "失败")))


class Failures:
    """Carries out faults; `closing` cuts short whatever still waits."""

    def __init__(self) -> None:
        self.closing = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """Wait, but not beyond the server's end."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.closing.wait(), seconds)

    def before_effect(self, request: web.BaseRequest, fault: Fault) -> web.Response | None:
        """The answer of a fault that prevents the effect; None for those that do not."""
        if fault.kind in ("refuse", "credential_expired"):
            return _json(wire.answer(fault.code, wire.MESSAGES.get(fault.code, "模拟拒绝")))
        if fault.kind == "http_429":
            return refuse_http("http_429", fault.retry_after)
        if fault.kind == "reset_before_effect":
            return _reset(request)
        return None

    async def after_effect(
        self, request: web.BaseRequest, fault: Fault, reply: bytes
    ) -> web.StreamResponse:
        """The answer, or what comes of it, after the effect."""
        if fault.kind == "http_5xx_after_effect":
            return web.Response(
                status=fault.status, text="<html><h1>Server Error</h1></html>",
                content_type="text/html",
            )  # fmt: skip
        if fault.kind == "hang":
            await self._hang(request, fault.seconds)
            return _reset(request)
        if fault.kind == "garbage_body":
            return _json(b"\x00\xff<<not json>>" + reply[:10])
        if fault.kind == "huge_body":
            return await self._huge(request, fault.bytes)
        if fault.kind == "slow_drip":
            return await self._drip(request, reply, fault.seconds)
        if fault.kind == "truncated_body":
            return await self._truncated(request, reply)
        return _reset(request)  # reset_after_effect

    async def _hang(self, request: web.BaseRequest, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not self.closing.is_set() and not _gone(request) and loop.time() < end:
            await self.sleep(min(_POLL_SECONDS, max(0.0, end - loop.time())))

    async def _drip(
        self, request: web.BaseRequest, reply: bytes, seconds: float
    ) -> web.StreamResponse:
        response = await _begin(request, length=len(reply))
        with suppress(ConnectionError):
            for byte in reply:
                if self.closing.is_set() or _gone(request):
                    break
                await response.write(bytes((byte,)))
                await self.sleep(seconds / len(reply))
        return response

    async def _huge(self, request: web.BaseRequest, size: int) -> web.StreamResponse:
        response = await _begin(request, length=None)
        with suppress(ConnectionError):
            await response.write(b'{"code":0,"msg":"')
            for _ in range(0, size, len(_CHUNK)):
                if self.closing.is_set() or _gone(request):
                    break
                await response.write(_CHUNK)
            await response.write(b'"}')
        return response

    async def _truncated(self, request: web.BaseRequest, reply: bytes) -> web.StreamResponse:
        response = await _begin(request, length=len(reply))
        with suppress(ConnectionError):
            await response.write(reply[: len(reply) // 2])
            # A plain close, so that the half that was written does arrive.
            if request.transport is not None:
                request.transport.close()
        return response


async def _begin(request: web.BaseRequest, *, length: int | None) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    if length is None:
        response.enable_chunked_encoding()
    else:
        response.content_length = length
    await response.prepare(request)
    return response


def _gone(request: web.BaseRequest) -> bool:
    return request.transport is None or request.transport.is_closing()


def _reset(request: web.BaseRequest) -> web.Response:
    """End the connection with a TCP reset: nothing more is sent, not even an orderly close."""
    transport = request.transport
    if transport is not None:
        sock = transport.get_extra_info("socket")
        if sock is not None:
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    return web.Response()  # goes nowhere


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")
