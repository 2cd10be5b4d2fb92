"""What the drills share: real processes, the gateway's own record, and waiting with a limit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection
from psycopg.conninfo import make_conninfo

ROOT = Path(__file__).resolve().parents[2]


def database_url() -> str:
    """The test's own database, for other processes."""
    names = ("dbname", "user", "password", "host", "port")
    params = connection.get_connection_params()
    return make_conninfo(**{name: params[name] for name in names if name in params})


def environment(**more: str) -> dict[str, str]:
    """What real processes run with beside the tests' own settings."""
    return os.environ | {
        "DATABASE_URL": database_url(),
        "REDIS_URL": settings.REDIS_URL,
        "SECRET_KEY": settings.SECRET_KEY,
        "DJANGO_SETTINGS_MODULE": "wecom_ops.settings",
        "HTTPS": "off",
        **more,
    }


class Children:
    """Processes of a drill, ended with it."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self.folder = folder
        self.env = dict(env)
        self._started: list[subprocess.Popen[bytes]] = []

    def manage(self, *words: str) -> subprocess.Popen[bytes]:
        """manage.py, its output in a log of its own."""
        return self.python(str(ROOT / "manage.py"), *words, log=words[0])

    def python(
        self, *words: str, log: str, stdin: int | None = None, **env: str
    ) -> subprocess.Popen[bytes]:
        with (self.folder / f"{log}.log").open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, *words],
                cwd=ROOT, env=self.env | env, stdin=stdin, stdout=output, stderr=output,
            )  # fmt: skip
        self._started.append(process)
        return process

    def run(self, *words: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        """A command of manage.py to its end."""
        return subprocess.run(
            [sys.executable, ROOT / "manage.py", *words],
            cwd=ROOT, env=self.env, capture_output=True, encoding="utf-8", timeout=timeout,
            check=False,
        )  # fmt: skip

    def logs(self, most: int = 6000) -> str:
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-most:]}"
            for path in sorted(self.folder.glob("*.log"))
        )

    def end(self) -> None:
        """SIGTERM, then the last resort; each by its own id."""
        for process in reversed(self._started):
            process.terminate()
        for process in reversed(self._started):
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)
            if process.stdin:
                process.stdin.close()


def lanes_of(stack: subprocess.Popen[bytes]) -> list[int]:
    """Process ids of the lane workers that this stack runs now."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if parent == stack.pid and b"rqworker" in words and b"lanes" in words:
                found.append(int(folder.name))
    return sorted(found)


class Gate:
    """The simulated gateway as the judge sees it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, method: str, path: str, body: object = None) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", method=method, data=data)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return bytes(answer.read())

    def ready(self) -> bool:
        with suppress(OSError):
            self.ask("GET", "/_sim/stats")
            return True
        return False

    def total(self) -> int:
        return int(json.loads(self.ask("GET", "/_sim/stats"))["total"])

    def effects(self) -> list[dict[str, Any]]:
        """Every target that took effect, in order."""
        return [json.loads(line) for line in self.ask("GET", "/_sim/calls").splitlines()]

    def sends(self) -> list[tuple[str, str]]:
        return [(effect["guid"], effect["target"]) for effect in self.effects()]

    def fail(self, **fault: object) -> int:
        """Install a fault; its id."""
        return int(json.loads(self.ask("POST", "/_sim/faults", fault))["id"])

    def heal(self, fault: int | None = None) -> None:
        self.ask("DELETE", "/_sim/faults" if fault is None else f"/_sim/faults?id={fault}")

    def fired(self) -> dict[str, int]:
        """How often each installed fault has fired."""
        return dict(json.loads(self.ask("GET", "/_sim/stats"))["faults"])


def wait(condition: Callable[[], bool], within: float, what: str, children: Children) -> None:
    """Until it comes true; a failure shows what the processes said."""
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {within} s\n{children.logs()}"
        time.sleep(0.05)


def worst_window(moments: list[float], seconds: float = 60.0) -> int:
    """The most of these moments that any half-open window of that length holds."""
    moments = sorted(moments)
    most = start = 0
    for end, moment in enumerate(moments):
        while moments[start] <= moment - seconds:
            start += 1
        most = max(most, end - start + 1)
    return most
