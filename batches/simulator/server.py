"""Serving the simulated gateway on a port, until told to stop."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable

from aiohttp import web

from .control import handle_control
from .gateway import SimulatedGateway, SimulatorOptions

BACKLOG = 4096


async def start(
    gateway: SimulatedGateway, *, host: str, port: int, keepalive: float
) -> tuple[web.ServerRunner, int]:
    """Listen; gives the runner to clean up and the port taken. Raises OSError."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if request.path.startswith("/_sim"):
            return await handle_control(gateway, request)
        if request.method != "POST":
            return web.Response(status=405, headers={"Allow": "POST"})
        return await gateway.handle(request)

    server = web.Server(handle, access_log=None, keepalive_timeout=keepalive)
    runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, backlog=BACKLOG)
        await site.start()
    except OSError:
        await runner.cleanup()
        raise
    gateway.callbacks.start()
    taken: int = runner.addresses[0][1]
    return runner, taken


async def stop(gateway: SimulatedGateway, runner: web.ServerRunner) -> None:
    """Cut short what waits, then close."""
    gateway.failures.closing.set()
    await gateway.callbacks.stop()
    await runner.cleanup()
    gateway.record.close()


async def _serve(
    options: SimulatorOptions, host: str, port: int, keepalive: float, ready: Callable[[str], None]
) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stopping.set)
    gateway = SimulatedGateway(options)
    runner, taken = await start(gateway, host=host, port=port, keepalive=keepalive)
    ready(f"simulator ready on http://{host}:{taken}")
    await stopping.wait()
    await stop(gateway, runner)


def run(
    options: SimulatorOptions,
    *,
    host: str,
    port: int,
    keepalive: float,
    ready: Callable[[str], None],
) -> None:
    """Serve until SIGTERM or SIGINT. Raises OSError where the port is taken."""
    with asyncio.Runner(loop_factory=_new_loop()) as runner:
        runner.run(_serve(options, host, port, keepalive, ready))


def _new_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    if sys.platform == "win32":
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop
