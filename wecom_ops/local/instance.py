"""The folder that one run of the demo lives in: kept per clone, or thrown away."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from wecom_ops.local.files import exclusive_lock, free_port, port_is_free, temporary_folder

ROOT = Path(__file__).resolve().parents[2]


class Instance:
    """Data, logs and secrets of one run."""

    def __init__(self, home: Path, *, kept: bool, note: str = "") -> None:
        self.home = home
        self.kept = kept
        self.note = note

    @property
    def logs(self) -> Path:
        folder = self.home / "logs"
        folder.mkdir(exist_ok=True)
        return folder

    def secret(self, name: str) -> str:
        """A random word, the same at every start of a kept instance."""
        path = self.home / name
        if not path.is_file():
            path.touch(mode=0o600)
            path.write_text(secrets.token_urlsafe(48 if name == "secret_key" else 12))
        return path.read_text().strip()

    def remembered_port(self, name: str) -> int:
        """The port of the last start if nobody has taken it since, so that addresses stay valid."""
        path = self.home / name
        with contextlib.suppress(OSError, ValueError):
            port = int(path.read_text())
            if port_is_free(port):
                return port
        port = free_port()
        path.write_text(str(port))
        return port


@contextlib.contextmanager
def open_instance(*, keep: bool) -> Iterator[Instance]:
    """The clone's own instance, or a temporary one where it is in use or cannot be kept."""
    note = ""
    if keep:
        home = ROOT / "var" / "demo"
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            mine = home.stat().st_uid == os.geteuid()
        except OSError:
            mine = False
        if mine:
            with exclusive_lock(home / "lock") as held:
                if held:
                    yield Instance(home, kept=True)
                    return
            note = "The demo of this clone already runs; this one starts empty and is thrown away."
        else:
            note = f"{home} is not ours to write; this run starts empty and is thrown away."
    home = temporary_folder()
    try:
        yield Instance(home, kept=False, note=note)
    finally:
        shutil.rmtree(home, ignore_errors=True)
