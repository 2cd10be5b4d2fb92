"""Storing a file as it comes in."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from django.conf import settings

from batches.domain.problems import Problem
from batches.domain.text import N_
from batches.intake.decoding import file_empty
from batches.intake.source import FileRefusedError, rechunk
from batches.models import Upload, UploadChunk
from batches.store.events import Actor, person_of

CONTROLS = re.compile(r"[\x00-\x1f\x7f]")


def store_upload(actor: Actor, name: str, chunks: Iterable[bytes]) -> Upload:
    """Write the bytes as they come in; too many of them end it at once."""
    upload = Upload.objects.create(name=name, size=0, sha256="", created_by=person_of(actor))
    digest, size = hashlib.sha256(), 0
    for number, chunk in enumerate(rechunk(chunks)):
        size += len(chunk)
        if size > settings.UPLOAD_MAX_BYTES:
            raise FileRefusedError(
                Problem(
                    "file_too_large",
                    N_("文件超过 %(limit)s MB 的上限。请拆成几个文件分别上传。"),
                    {"limit": f"{settings.UPLOAD_MAX_BYTES / 1024 / 1024:g}"},
                )
            )
        digest.update(chunk)
        UploadChunk.objects.create(upload=upload, number=number, data=chunk)
    if not size:
        raise FileRefusedError(file_empty())
    upload.size, upload.sha256 = size, digest.hexdigest()
    upload.save(update_fields=["size", "sha256"])
    return upload


def base_name(name: str) -> str:
    """The last part of a path of any system, without control characters."""
    base = re.split(r"[\\/]", CONTROLS.sub("", name))[-1].strip()
    return base[-255:] or "upload.csv"
