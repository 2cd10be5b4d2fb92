"""A text column that is encrypted at rest."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.db import models


def _box() -> MultiFernet:
    """Keys in use: the secret key first, then the fallbacks of a rotation."""
    secrets = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    return MultiFernet(
        Fernet(base64.urlsafe_b64encode(hashlib.sha256(f"column:{s}".encode()).digest()))
        for s in secrets
    )


def open_secret(stored: str | None) -> str:
    """The text behind a stored token; '' where there is none or no current key opens it."""
    if not stored:
        return ""
    try:
        return _box().decrypt(stored.encode()).decode()
    except InvalidToken:
        return ""


if TYPE_CHECKING:
    _TextField = models.TextField[str, str]
else:
    _TextField = models.TextField


class EncryptedTextField(_TextField):
    """Text that PostgreSQL only ever sees as a Fernet token; '' stays ''.

    A value that no current key opens reads as '' (the secret key was changed without a
    fallback): whoever needs it reports a missing token instead of crashing every page.
    """

    def get_prep_value(self, value: Any) -> str:
        return _box().encrypt(str(value).encode()).decode() if value else ""

    def from_db_value(self, value: str | None, expression: object, connection: object) -> str:
        return open_secret(value)
