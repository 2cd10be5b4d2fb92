"""What benchmarks stand on: servers of their own, child processes, the server's CPU, a table."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from wecom_ops.local.files import temporary_folder
from wecom_ops.local.servers import local_servers

ROOT = Path(__file__).resolve().parent.parent
_TICK = os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def own_servers() -> Iterator[None]:
    """PostgreSQL (fsync and synchronous commit on) and Valkey, named in the environment."""
    for name in ("DATABASE_URL", "REDIS_URL"):
        os.environ.pop(name, None)
    home = temporary_folder()
    try:
        with local_servers(home, durable=True) as urls:
            os.environ.update(urls)
            yield
    finally:
        note = home / "postgres-home"
        if note.exists():
            shutil.rmtree(note.read_text().strip(), ignore_errors=True)
        shutil.rmtree(home, ignore_errors=True)


def migrate() -> None:
    subprocess.run(
        [sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, check=True, env=_environment({})
    )


def _environment(extra: dict[str, str]) -> dict[str, str]:
    return {**os.environ, "DJANGO_SETTINGS_MODULE": "benchmarks.settings", **extra}


def start(*command: str, **extra: str) -> subprocess.Popen[str]:
    """A module of this folder as a process: `start("lane", "--turn", "75")`."""
    module, *arguments = command
    return subprocess.Popen(
        [sys.executable, "-m", f"benchmarks.{module}", *arguments],
        cwd=ROOT,
        env=_environment(extra),
        stdout=subprocess.PIPE,
        text=True,
    )


def run(*command: str, **extra: str) -> dict[str, Any]:
    """Run a module to its end; the JSON that it prints last."""
    process = start(*command, **extra)
    try:
        out, _ = process.communicate()
    finally:
        process.kill()  # does nothing to one that has ended
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}")
    told: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return told


@contextlib.contextmanager
def gateway(*arguments: str) -> Iterator[int]:
    """The constant gateway on a free port."""
    process = start("gateway", *arguments)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()


class PostgresCpu:
    """Seconds of CPU that the local server's processes have used since this was made."""

    def __init__(self, backend_pid: int) -> None:
        self._postmaster = int(_stat(backend_pid)[1])
        self._before = self._now()

    def used(self) -> float:
        return self._now() - self._before

    def _now(self) -> float:
        total = sum(map(int, _stat(self._postmaster)[11:15]))
        for path in Path(f"/proc/{self._postmaster}/task").glob("*/children"):
            for pid in path.read_text().split():
                with contextlib.suppress(OSError):
                    total += sum(map(int, _stat(int(pid))[11:13]))
        return total / _TICK


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def until(done: Any, *, limit: float, every: float = 0.1) -> None:
    """Wait for something to come true. Raises TimeoutError."""
    end = time.monotonic() + limit
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {limit} s")
        time.sleep(every)


def median(values: Iterable[float]) -> float:
    return statistics.median(list(values))


def percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")


class Table:
    """The one table of a run: a line per measured thing, with its ratio and its bar."""

    def __init__(self) -> None:
        self._lines: list[tuple[str, str, str, str]] = []

    def add(self, what: str, value: str, ratio: str = "", bar: str = "") -> None:
        self._lines.append((what, value, ratio, bar))
        print(f"  {what}: {value} {ratio} {bar}".rstrip(), file=sys.stderr, flush=True)

    def head(self, text: str) -> None:
        self._lines.append((f"[{text}]", "", "", ""))
        print(f"[{text}]", file=sys.stderr, flush=True)

    def __str__(self) -> str:
        lines = [("what", "measured", "ratio", "bar"), *self._lines]
        widths = [max(len(line[n]) for line in lines) for n in range(4)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )
