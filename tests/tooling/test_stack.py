"""manage.py stack with its real children: heals, and stops cleanly in time."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection
from psycopg.conninfo import make_conninfo

from tests.tooling.processes import is_alive, wait_until
from wecom_ops.local.files import free_port, tail

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(sys.platform != "linux", reason="looks children up in /proc"),
]
ROOT = Path(__file__).resolve().parents[2]


def database_url() -> str:
    names = ("dbname", "user", "password", "host", "port")
    params = connection.get_connection_params()
    return make_conninfo(**{name: params[name] for name in names if name in params})


class Stack:
    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.log = folder / "stack.log"
        variables = {
            "DATABASE_URL": database_url(),
            "REDIS_URL": settings.REDIS_URL,
            "SECRET_KEY": settings.SECRET_KEY,
            "DJANGO_SETTINGS_MODULE": "wecom_ops.settings",
            "HTTPS": "off",
            "ALLOWED_HOSTS": "127.0.0.1",
            "STATIC_ROOT": str(folder / "static"),
            "PORT": str(self.port),
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, ROOT / "manage.py", "stack", "--lanes", "1"],
                env=os.environ | variables,
                stdout=log,
                stderr=log,
            )

    def children(self) -> dict[str, int]:
        """Process id by what the command line names."""
        pid = self.process.pid
        found = {}
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            try:
                line = Path(f"/proc/{child}/cmdline").read_text()
            except OSError:
                continue
            for name in ("LaneWorker", "control", "periodic", "gunicorn"):
                if name in line:
                    found[name] = int(child)
        return found

    def healthy(self) -> bool:
        web = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            web.request("GET", "/healthz")
            return web.getresponse().status == 200
        except OSError:
            return False
        finally:
            web.close()


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    running = Stack(tmp_path)
    yield running
    running.process.terminate()
    running.process.wait(timeout=20)


def test_stack_heals_a_killed_lane_and_stops_within_ten_seconds(stack: Stack) -> None:
    assert wait_until(lambda: stack.healthy() and len(stack.children()) == 4, 60), tail(stack.log)
    first = stack.children()["LaneWorker"]
    others = {name: pid for name, pid in stack.children().items() if name != "LaneWorker"}

    os.kill(first, signal.SIGKILL)
    assert wait_until(lambda: stack.children().get("LaneWorker", first) != first), tail(stack.log)
    assert {**stack.children(), "LaneWorker": 0} == {**others, "LaneWorker": 0}
    again = f"started with PID {stack.children()['LaneWorker']}"
    assert wait_until(lambda: again in stack.log.read_text()), tail(stack.log)

    everybody = list(stack.children().values())
    began = time.monotonic()
    stack.process.send_signal(signal.SIGTERM)
    assert stack.process.wait(timeout=20) == 0
    assert time.monotonic() - began < 10, tail(stack.log)
    assert not any(is_alive(pid) for pid in everybody)
    assert "is killed" not in stack.log.read_text()
