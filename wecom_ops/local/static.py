"""Collects static files when, and only when, what is collected is out of date."""

from __future__ import annotations

import hashlib
from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command


def _sources_fingerprint() -> str:
    digest = hashlib.sha256(settings.STORAGES["staticfiles"]["BACKEND"].encode())
    for finder in get_finders():
        for path, storage in finder.list([]):
            found = Path(storage.path(path)).stat()
            digest.update(f"{path}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def collect_static_if_stale() -> bool:
    """Whether anything had to be collected."""
    root = Path(settings.STATIC_ROOT)
    stamp = root.with_name(f"{root.name}.fingerprint")
    wanted = _sources_fingerprint()
    if root.is_dir() and stamp.is_file() and stamp.read_text() == wanted:
        return False
    root.mkdir(parents=True, exist_ok=True)
    call_command("collectstatic", interactive=False, verbosity=0)
    stamp.write_text(wanted)
    return True
