"""A committed database for each test, emptied by deleting the few rows that it made.

It stands in for what `django_db(transaction=True)` does at the end of a test: truncate every table
and make all permissions anew, which takes far longer than these tests do. Should pytest-django
name its fixture differently one day, that is what happens again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

_TABLES = (
    *(
        f"batches_{table}"
        for table in (
            "event", "alert", "item", "call", "jobminute", "rejection", "shard", "job", "contact",
            "account", "gateway", "lane", "uploadchunk", "upload",
        )
    ),
    # people too: pages list whoever is there
    "django_admin_log", "auth_user_user_permissions", "auth_user_groups", "auth_user",
)  # fmt: skip


@pytest.fixture
def _django_db_helper(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: Any
) -> Iterator[None]:
    with django_db_blocker.unblock():
        if "loaded" in request.fixturenames:  # a module's own rows, made once and kept
            yield
            return
        _empty()
        try:
            yield
        finally:
            if connection.in_atomic_block or connection.needs_rollback:
                connection.close()
            _empty()
            connection.close()


def _empty() -> None:
    with connection.cursor() as cursor:
        cursor.execute(";".join(f"delete from {table}" for table in _TABLES))
