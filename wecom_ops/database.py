"""DATABASE_URL, any libpq connection URI, turned into Django's DATABASES entry."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

# libpq keyword → Django setting; every other keyword is handed on as an option.
_NAMES = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}


def database_from_uri(uri: str, *, conn_max_age: int = 0) -> dict[str, Any]:
    """What libpq would read in the URI, in Django's words.

    A socket directory may be given as ``?host=/dir`` or percent-encoded in the host part;
    keywords that are left out fall to libpq's own defaults (PGHOST, PGUSER, …).
    """
    try:
        parsed = conninfo_to_dict(uri)
    except ProgrammingError as error:
        raise ImproperlyConfigured(f"DATABASE_URL is not a libpq URI: {error}") from None
    if not parsed.get("dbname") and not parsed.get("service"):
        raise ImproperlyConfigured("DATABASE_URL names no database.")
    entry: dict[str, Any] = {
        "ENGINE": "django.db.backends.postgresql",
        "CONN_MAX_AGE": conn_max_age,
        "CONN_HEALTH_CHECKS": True,
        "ATOMIC_REQUESTS": False,
    }
    options: dict[str, Any] = {}
    for keyword, value in parsed.items():
        if value is None:
            continue
        name = _NAMES.get(keyword)
        if name is None:
            options[keyword] = value
        else:
            entry[name] = str(value)
    options.setdefault("connect_timeout", 10)
    options.setdefault("application_name", "wecom-ops")
    entry["OPTIONS"] = options
    return entry
