"""Private folders, log tails, free ports and locks of a local run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

_SHORT_PREFIX = "wops-"


class LocalStackError(Exception):
    """Something that the local run needs cannot be had; the message tells a person what to do."""


def temporary_folder(*candidates: str) -> Path:
    """A fresh folder of mode 0700 whose path is short enough for a Unix socket beneath it."""
    for parent in (*candidates, tempfile.gettempdir(), "/tmp"):  # noqa: S108 - mkdtemp is private
        if len(parent) <= 60 and os.access(parent, os.W_OK | os.X_OK):
            return Path(tempfile.mkdtemp(prefix=_SHORT_PREFIX, dir=parent))
    raise LocalStackError("No writable temporary folder with a short path; set TMPDIR to one.")


def tail(path: Path, lines: int = 15) -> str:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return f"(no log: {error})"
    return "\n".join(text.splitlines()[-lines:])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: a port in TIME_WAIT may be taken again.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@contextlib.contextmanager
def exclusive_lock(path: Path) -> Iterator[bool]:
    """Whether this process holds the file's lock; it never waits, and a kill lets go of it."""
    with path.open("a+b") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
