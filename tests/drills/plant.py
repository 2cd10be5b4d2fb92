"""Servers and lanes of a drill's own, so that each of them may be killed, flushed and restarted."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from wecom_ops.local.files import LocalStackError, free_port, temporary_folder
from wecom_ops.local.postgres import EmbeddedPostgres, find_install
from wecom_ops.local.servers import _postgres_home
from wecom_ops.local.valkey import EmbeddedValkey, find_server

from .rig import Children, Gate, environment, wait

TIMEOUT = 2.0


class Plant:
    """PostgreSQL, Valkey, a simulated gateway, and lanes that are started again when they die."""

    def __init__(self, folder: Path, home: Path, *, lanes: int, seed: int) -> None:
        self.postgres = EmbeddedPostgres(home, durable=False)
        self.valkey = EmbeddedValkey(folder / "valkey", durable=False)
        self.children = Children(folder, {})
        self.gate = Gate(free_port())
        self.folder = folder
        self._wanted = lanes
        self.lanes: list[subprocess.Popen[bytes]] = []
        self._seed = seed

    # --- up and down -----------------------------------------------------------------------------

    def start(self, **env: str) -> None:
        self.postgres.start()
        self.valkey.start()
        servers = {"DATABASE_URL": self.postgres.url, "REDIS_URL": self.valkey.url}
        self.children.env = environment(**(servers | env))
        self.manage("migrate", "-v", "0")
        self.children.manage(
            "simulate_gateway", "--port", str(self.gate.port), "--latency-ms", "5-60",
            "--no-limits", "--seed", str(self._seed),
        )  # fmt: skip
        wait(self.gate.ready, 30, "gateway up", self.children)

    def work(self) -> None:
        """From now on lanes and the periodic work run."""
        self.children.manage("periodic", "--every", "1")
        self.mend()

    def mend(self) -> None:
        """Start again what has died; a supervisor would do it a little later."""
        self.lanes = [lane for lane in self.lanes if lane.poll() is None]
        while len(self.lanes) < self._wanted:
            self.lanes.append(
                self.children.manage(
                    "rqworker", "lanes", "--worker-class", "batches.worker.LaneWorker"
                )
            )

    def stop_lanes(self, within: float = 15.0) -> None:
        self._wanted = 0
        for lane in self.lanes:
            lane.terminate()
        for lane in self.lanes:
            assert lane.wait(within) is not None

    def stop(self) -> None:
        self.children.end()
        self.valkey.stop()
        self.postgres.stop()

    # --- what a drill does to it -----------------------------------------------------------------

    def manage(self, *words: str) -> str:
        done = self.children.run(*words)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def try_manage(self, *words: str) -> int:
        return self.children.run(*words).returncode

    def sql(self, statement: str, *params: object) -> list[tuple[Any, ...]]:
        """On a connection of its own: the server may be another one by now."""
        with psycopg.connect(self.postgres.url, autocommit=True, connect_timeout=5) as conn:
            cursor = conn.execute(statement, params)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def hit_lane(self, rng: random.Random, number: int) -> None:
        rng.choice(self.lanes).send_signal(number)

    def restart_postgres(self, number: int) -> None:
        """SIGINT: connections are cut off in order; SIGQUIT: as in a crash, with recovery."""
        child = self.postgres._child
        assert child is not None
        child.stop([(number, 15.0)])
        self.postgres._child = None
        self.postgres.start()

    def restart_valkey(self, away: float) -> None:
        """Everything in it is gone, and for a while so is it; the port stays the same."""
        self.valkey.stop()
        time.sleep(away)
        self.valkey._start_once()

    def flush(self) -> None:
        with redis.Redis.from_url(self.valkey.url, socket_timeout=5) as client:
            client.flushall()


@contextlib.contextmanager
def plant(folder: Path, *, lanes: int, seed: int = 1, **env: str) -> Iterator[Plant]:
    """A running plant, stopped at the end; skipped where the servers' wheels are not installed."""
    try:
        find_install()
        find_server()
    except LocalStackError as error:
        pytest.skip(str(error))
    short = temporary_folder()
    with _postgres_home(short, durable=False) as home:
        found = Plant(folder, home, lanes=lanes, seed=seed)
        try:
            found.start(**env)
            yield found
        finally:
            found.stop()
            shutil.rmtree(short, ignore_errors=True)


SIGINT, SIGQUIT = signal.SIGINT, signal.SIGQUIT
