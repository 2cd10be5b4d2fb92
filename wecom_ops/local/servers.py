"""The two servers of a local run: the user's own where named, embedded ones elsewhere."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from wecom_ops.local.files import LocalStackError, temporary_folder
from wecom_ops.local.postgres import EmbeddedPostgres, reaches, server_identity
from wecom_ops.local.valkey import EmbeddedValkey


@contextlib.contextmanager
def local_servers(home: Path, *, durable: bool) -> Iterator[dict[str, str]]:
    """DATABASE_URL and REDIS_URL of running servers; what this started, it stops.

    ``home`` is a private folder for their data. With ``durable`` the data outlives a crash and is
    found again by the next run in the same ``home``; without, it is thrown away at the end.
    """
    urls = {name: os.environ.get(name, "").strip() for name in ("DATABASE_URL", "REDIS_URL")}
    with contextlib.ExitStack() as stack:
        if not urls["DATABASE_URL"]:
            postgres = EmbeddedPostgres(
                stack.enter_context(_postgres_home(home, durable=durable)), durable=durable
            )
            stack.callback(postgres.stop)
            postgres.start()
            urls["DATABASE_URL"] = postgres.url
        if not urls["REDIS_URL"]:
            valkey = EmbeddedValkey(home / "valkey", durable=durable)
            stack.callback(valkey.stop)
            valkey.start()
            urls["REDIS_URL"] = valkey.url
        yield urls


@contextlib.contextmanager
def _postgres_home(home: Path, *, durable: bool) -> Iterator[Path]:
    """A folder that the server's user can reach.

    Root's server runs as another user, who as a rule cannot enter the clone: its folder is made
    beneath a system temporary folder and, when durable, remembered in ``home``.
    """
    identity = server_identity()
    if identity is None:
        yield home / "postgres"
        return
    note = home / "postgres-home"
    with contextlib.suppress(OSError):
        remembered = Path(note.read_text().strip())
        if remembered.is_dir() and remembered.stat().st_uid == identity[0]:
            yield remembered
            return
    fresh = _folder_for(identity, "/var/tmp" if durable else tempfile.gettempdir())  # noqa: S108
    if durable:
        note.write_text(f"{fresh}\n")
    try:
        yield fresh
    finally:
        if not durable:
            shutil.rmtree(fresh, ignore_errors=True)


def _folder_for(identity: tuple[int, int], preferred: str) -> Path:
    for parent in (preferred, tempfile.gettempdir(), "/tmp", "/var/tmp"):  # noqa: S108
        if Path(parent).is_dir() and reaches(identity, "/bin/sh", "-c", 'cd "$1"', "sh", parent):
            folder = temporary_folder(parent)
            os.chown(folder, *identity)
            return folder
    raise LocalStackError(
        "No temporary folder that the PostgreSQL server's user may enter; set DATABASE_URL."
    )
