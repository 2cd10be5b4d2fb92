"""A Redis without gates, and one of the test's own that it may stop."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
import redis
from django.conf import settings

from wecom_ops.local.files import LocalStackError, free_port
from wecom_ops.local.valkey import find_server

GATE_KEYS = "wecom_ops:{gate}*"


@pytest.fixture
def gate_redis() -> Iterator[redis.Redis]:
    """The server of REDIS_URL with no gate's key in it, before and after."""
    client = redis.Redis.from_url(settings.REDIS_URL, decode_responses=True)

    def forget() -> None:
        if keys := list(client.scan_iter(GATE_KEYS)):
            client.delete(*keys)

    forget()
    yield client
    forget()
    client.close()


def clock(client: redis.Redis) -> int:
    """The server's time, µs."""
    seconds, micros = client.time()
    return int(seconds) * 1_000_000 + int(micros)


@dataclass
class OwnServer:
    """A Valkey on a fixed port of loopback."""

    port: int = field(default_factory=free_port)
    child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self, folder: object) -> None:
        self.child = subprocess.Popen(
            [find_server(), "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""],
            cwd=str(folder),
            stdout=subprocess.DEVNULL,
        )
        end = time.monotonic() + 10
        with redis.Redis.from_url(self.url) as client:
            while True:
                try:
                    client.ping()
                except redis.RedisError:
                    assert time.monotonic() < end, "valkey did not start"
                    time.sleep(0.02)
                else:
                    return

    def stop(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child.wait(10)
            self.child = None


@pytest.fixture
def own_server(tmp_path: object) -> Iterator[OwnServer]:
    try:
        find_server()
    except LocalStackError as error:
        pytest.skip(str(error))
    server = OwnServer()
    server.start(tmp_path)
    yield server
    server.stop()
