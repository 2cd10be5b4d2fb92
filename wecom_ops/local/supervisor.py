"""Keeps a set of processes running, shows their output under their names, stops them in order."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from wecom_ops.local.child import Child

_TICK_SECONDS = 0.2
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
# A child that lived this long is not failing at its start; its next restart is quick again.
_SETTLED_SECONDS = 20.0


@dataclass(frozen=True, kw_only=True)
class Service:
    """What to run, and how it is asked to stop.

    Services of a lower ``stop_stage`` are stopped, all at once, before a higher one is asked.
    ``ladder`` is (signal, seconds to wait) pairs; what still runs after them is killed.
    """

    name: str
    command: Sequence[str | Path]
    stop_stage: int = 0
    ladder: Sequence[tuple[int, float]] = ((signal.SIGTERM, 2.0),)


@dataclass
class _Running:
    service: Service
    child: Child | None = None
    started_at: float = 0.0
    pause: float = _FIRST_PAUSE
    restart_at: float | None = None
    partial: bytes = b""
    asked: list[int] = field(default_factory=list)


class Supervisor:
    """One loop in one thread; ``run`` returns when a signal has asked it to stop."""

    def __init__(
        self,
        services: Sequence[Service],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        out: IO[bytes] | None = None,
    ) -> None:
        self._all = [_Running(service) for service in services]
        self._env = env
        self._cwd = cwd
        self._out = out or sys.stdout.buffer
        self._selector = selectors.DefaultSelector()
        self._stopping = False
        self._width = max(len(service.name) for service in services)

    def run(self) -> None:
        previous = {
            number: signal.signal(number, self._ask_to_stop)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        }
        try:
            for each in self._all:
                if not self._stopping:
                    self._start(each)
            while not self._stopping:
                self._read(_TICK_SECONDS)
                self._mend()
        finally:
            self._stop_all()
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _ask_to_stop(self, _number: int, _frame: object) -> None:
        self._stopping = True

    def _start(self, each: _Running) -> None:
        each.started_at = time.monotonic()
        each.restart_at = None
        each.child = Child(
            each.service.name,
            each.service.command,
            env=self._env,
            cwd=self._cwd,
            output=subprocess.PIPE,
        )
        stream = each.child.process.stdout
        assert stream is not None
        os.set_blocking(stream.fileno(), False)
        self._selector.register(stream, selectors.EVENT_READ, each)

    def _mend(self) -> None:
        """Starts again what died, later and later while it keeps dying."""
        now = time.monotonic()
        for each in self._all:
            if each.restart_at is not None:
                if now >= each.restart_at:
                    self._start(each)
            elif each.child is not None and not each.child.running:
                if now - each.started_at > _SETTLED_SECONDS:
                    each.pause = _FIRST_PAUSE
                self._say(f"{self._farewell(each)}; starts again in {each.pause:g} s")
                each.restart_at = now + each.pause
                each.pause = min(each.pause * 2, _LONGEST_PAUSE)

    def _farewell(self, each: _Running) -> str:
        child = each.child
        assert child is not None
        self._forget(each)
        code = child.returncode
        how = f"exit code {code}"
        if code is not None and code < 0:
            how = signal.Signals(-code).name
        return f"{each.service.name} ended ({how})"

    # --- output ---------------------------------------------------------------------------------

    def _read(self, timeout: float) -> None:
        for key, _events in self._selector.select(timeout):
            each: _Running = key.data
            self._pump(each)

    def _pump(self, each: _Running) -> None:
        """Whatever the pipe holds now, line by line; the end of the file is left to ``_forget``."""
        stream = each.child.process.stdout if each.child else None
        if stream is None or stream.closed:
            return
        try:
            chunk = os.read(stream.fileno(), 65536)
        except BlockingIOError:
            return
        if not chunk:
            self._unregister(each)
            return
        *lines, each.partial = (each.partial + chunk).split(b"\n")
        for line in lines:
            self._write(each.service.name, line)

    def _unregister(self, each: _Running) -> None:
        stream = each.child.process.stdout if each.child else None
        if stream is not None and not stream.closed:
            self._selector.unregister(stream)
            stream.close()

    def _forget(self, each: _Running) -> None:
        """Shows a dead child's last words, then closes its pipe."""
        self._pump(each)
        if each.partial:
            self._write(each.service.name, each.partial)
            each.partial = b""
        self._unregister(each)
        each.child = None

    def _write(self, name: str, line: bytes) -> None:
        try:
            self._out.write(name.ljust(self._width).encode() + b" | " + line + b"\n")
            self._out.flush()
        except OSError:  # whoever read us has gone; the children's work does not end for it
            self._out = Path(os.devnull).open("wb")  # noqa: SIM115 - kept for this run

    def _say(self, text: str) -> None:
        self._write("stack", text.encode())

    # --- the end --------------------------------------------------------------------------------

    def _stop_all(self) -> None:
        for stage in sorted({each.service.stop_stage for each in self._all}):
            self._stop_stage([each for each in self._all if each.service.stop_stage == stage])
        self._selector.close()

    def _stop_stage(self, members: Sequence[_Running]) -> None:
        began = time.monotonic()
        while True:
            left = [each for each in members if each.child is not None]
            for each in left:
                self._step(each, time.monotonic() - began)
            if not any(each.child is not None for each in members):
                return
            # The pipes are read meanwhile: a child must not block on a full one.
            self._read(0.05)

    def _step(self, each: _Running, elapsed: float) -> None:
        child = each.child
        assert child is not None
        if not child.running:
            self._forget(each)
            return
        due = 0.0
        for index, (number, patience) in enumerate(each.service.ladder):
            if elapsed >= due and index not in each.asked:
                each.asked.append(index)
                child.signal(number)
            due += patience
        if elapsed >= due:
            self._say(f"{each.service.name} did not stop in time and is killed")
            child.kill_session()


def repeat_until_stopped(act: Callable[[], None], *, every: float) -> None:
    """Calls ``act`` again and again until SIGTERM, SIGINT or SIGHUP, which ends a pause at once."""
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    stopping = False

    def stop(_number: int, _frame: object) -> None:
        nonlocal stopping
        stopping = True
        os.write(waker, b".")

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    with selectors.DefaultSelector() as selector:
        selector.register(woken, selectors.EVENT_READ)
        while not stopping:
            act()
            if not stopping:
                selector.select(every)
    os.close(woken)
    os.close(waker)
