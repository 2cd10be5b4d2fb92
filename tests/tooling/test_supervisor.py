"""The supervisor with real processes: restarts, order of the stop, nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tooling.processes import is_alive, wait_until

ROOT = Path(__file__).resolve().parents[2]


class FakeStack:
    """The program of fake_stack.py and the lines it has printed so far."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.tooling.fake_stack"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def pids(self, name: str) -> list[int]:
        """Process ids in the last line in which the service said that it is up."""
        for line in reversed(self.lines):
            if found := re.fullmatch(rf"{name} *\| {name} up ([\d ]+)", line):
                return [int(pid) for pid in found[1].split()]
        return []

    def ready(self) -> bool:
        return wait_until(lambda: all(self.pids(name) for name in ("lane", "stubborn", "web")))

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=20)
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def stack() -> Iterator[FakeStack]:
    running = FakeStack()
    yield running
    running.close()


def test_supervisor_child_killed_is_started_again(stack: FakeStack) -> None:
    assert stack.ready()
    (first,) = stack.pids("lane")
    (web,) = stack.pids("web")
    os.kill(first, signal.SIGKILL)
    assert wait_until(lambda: stack.pids("lane") not in ([], [first]))
    assert any("lane ended (SIGKILL)" in line for line in stack.lines)
    assert stack.pids("web") == [web]


def test_supervisor_child_that_keeps_failing_is_started_ever_later(stack: FakeStack) -> None:
    def pauses() -> list[str]:
        found = (re.search(r"broken ended \(exit code 3\).* in (.*) s", x) for x in stack.lines)
        return [each[1] for each in found if each]

    assert wait_until(lambda: len(pauses()) >= 3)
    assert pauses()[:3] == ["0.5", "1", "2"]


def test_supervisor_told_to_stop_ends_all_in_order_and_in_time(stack: FakeStack) -> None:
    assert stack.ready()
    everybody = [pid for name in ("lane", "stubborn", "web") for pid in stack.pids(name)]
    began = time.monotonic()
    stack.process.send_signal(signal.SIGTERM)
    assert stack.process.wait(timeout=15) == 0
    assert time.monotonic() - began < 10
    assert wait_until(lambda: "all stopped" in stack.lines)
    assert wait_until(lambda: not any(is_alive(pid) for pid in everybody))
    told = [line.partition("| ")[2] for line in stack.lines]
    assert told.index("lane last words") < told.index("web stopping")
    assert "x" * 200_000 in told  # a full pipe blocked nobody
    assert any("stubborn did not stop in time and is killed" in line for line in stack.lines)


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's parent-death signal")
def test_supervisor_killed_takes_its_children_along(stack: FakeStack) -> None:
    assert stack.ready()
    (lane,), (web,) = stack.pids("lane"), stack.pids("web")
    stubborn = stack.pids("stubborn")
    stack.process.kill()
    assert wait_until(lambda: not is_alive(lane) and not is_alive(web))
    for pid in stubborn:  # ignores the signal by design of this test
        os.kill(pid, signal.SIGKILL)
