"""A simulator on a free port of loopback, in a thread of its own, with a clock that tests move."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests

from batches.simulator.gateway import SimulatedGateway, SimulatorOptions
from batches.simulator.server import start, stop

GUID = "1688850000000000"
TARGET = "7881300000000000"


@dataclass
class Sim:
    """A running simulator as its clients see it."""

    url: str
    gateway: SimulatedGateway
    loop: asyncio.AbstractEventLoop
    now: list[float]
    session: requests.Session = field(default_factory=requests.Session)

    def send(self, target: str = TARGET, *, guid: str = GUID, content: str = "你好", **more):
        body = {"guid": guid, "toId": target, "content": content}
        return self.session.post(f"{self.url}/message/sendText", json=body, timeout=10, **more)

    def post(self, path: str, body: object, **more) -> requests.Response:
        return self.session.post(f"{self.url}{path}", json=body, timeout=10, **more)

    def get(self, path: str) -> requests.Response:
        return self.session.get(f"{self.url}{path}", timeout=10)

    def fault(self, kind: str, **more) -> None:
        answer = self.post("/_sim/faults", {"kind": kind, **more})
        assert answer.status_code == 201, answer.text

    def calls(self, query: str = "") -> list[dict[str, object]]:
        return [json.loads(line) for line in self.get(f"/_sim/calls{query}").text.splitlines()]

    def targets(self) -> list[object]:
        return [call["target"] for call in self.calls()]


@pytest.fixture
def make_sim() -> Iterator[Callable[..., Sim]]:
    stops: list[Callable[[], None]] = []

    def make(**options) -> Sim:
        now = [1_800_000_000.0]
        started: list[object] = []
        is_up = threading.Event()
        done = threading.Event()

        def serve() -> None:
            async def main() -> None:
                gateway = SimulatedGateway(SimulatorOptions(**options), clock=lambda: now[0])
                runner, port = await start(gateway, host="127.0.0.1", port=0, keepalive=75)
                ending = asyncio.Event()
                started.extend((gateway, port, asyncio.get_running_loop(), ending))
                is_up.set()
                await ending.wait()
                await stop(gateway, runner)

            try:
                asyncio.run(main())
            finally:
                is_up.set()
                done.set()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        assert is_up.wait(10)
        assert started, "the simulator did not start"
        gateway, port, loop, ending = started
        sim = Sim(f"http://127.0.0.1:{port}", gateway, loop, now)

        def end() -> None:
            sim.session.close()
            loop.call_soon_threadsafe(ending.set)
            assert done.wait(10), "the simulator did not stop"
            thread.join(10)

        stops.append(end)
        return sim

    yield make
    for end in stops:
        end()


@pytest.fixture
def sim(make_sim: Callable[..., Sim]) -> Sim:
    return make_sim()


@dataclass
class Listener:
    """A callback address, and what arrived there."""

    url: str
    bodies: list[dict[str, object]]
    statuses: list[int]

    def events(self) -> list[dict[str, object]]:
        return [event for body in list(self.bodies) for event in body["data"]]


@pytest.fixture
def listener() -> Iterator[Listener]:
    heard = Listener("", [], [])

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            heard.bodies.append(json.loads(body))
            self.send_response(heard.statuses.pop(0) if heard.statuses else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    heard.url = f"http://127.0.0.1:{server.server_address[1]}/callbacks/s3cret/"
    yield heard
    server.shutdown()
    server.server_close()
    thread.join(10)


def eventually(what: Callable[[], object], seconds: float = 10.0) -> object:
    """The first true value of `what`, asked until it is; fails when time is up."""
    end = time.monotonic() + seconds
    while not (value := what()):
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.02)
    return value
