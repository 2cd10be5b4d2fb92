"""GET /healthz: may this instance serve? 200, or 503 with the reasons."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable

import psycopg
import redis
from django.conf import settings
from django.db import connections
from django.db.migrations.loader import MigrationLoader
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

logger = logging.getLogger(__name__)

# A load balancer asks every few seconds and gives up soon: an answer must beat its patience.
TIMEOUT_SECONDS = 2
# What Django adds for its own cursors and psycopg's connect() does not take.
_DJANGO_ONLY = frozenset({"cursor_factory", "context", "prepare_threshold"})


class UnhealthyError(Exception):
    """A part that the service needs answers, but is not fit for use; the message may be shown."""


@functools.cache
def _known_migrations() -> frozenset[tuple[str, str]]:
    """The ones on disk, which do not change while this process runs."""
    return frozenset(MigrationLoader(None).disk_migrations)


def check_postgresql() -> None:
    """By a short connection of its own: the request's could wait for its full connect timeout."""
    found = connections["default"].get_connection_params()
    params = {name: value for name, value in found.items() if name not in _DJANGO_ONLY}
    params["connect_timeout"] = TIMEOUT_SECONDS
    limit = f"-c statement_timeout={TIMEOUT_SECONDS}s"
    params["options"] = f"{params.get('options', '')} {limit}".strip()
    with psycopg.connect(**params) as connection:
        try:
            rows = connection.execute("SELECT app, name FROM django_migrations").fetchall()
        except psycopg.errors.UndefinedTable:
            rows = []
    missing = sorted(f"{app}.{name}" for app, name in _known_migrations().difference(rows))
    if missing:
        raise UnhealthyError(f"migrations not applied: {', '.join(missing)}")


def check_redis() -> None:
    client = redis.Redis.from_url(
        settings.REDIS_URL,
        socket_connect_timeout=TIMEOUT_SECONDS,
        socket_timeout=TIMEOUT_SECONDS,
    )
    with client:
        client.ping()


CHECKS: dict[str, Callable[[], None]] = {"postgresql": check_postgresql, "redis": check_redis}


@never_cache
@require_safe
def healthz(_request: HttpRequest) -> JsonResponse:
    reasons: dict[str, str] = {}
    for name, check in CHECKS.items():
        try:
            check()
        except UnhealthyError as error:
            reasons[name] = str(error)
        except (psycopg.Error, redis.RedisError, OSError) as error:
            # Anybody may ask, and drivers name hosts and users: their words go to the log.
            logger.warning("health check of %s failed: %s", name, error)
            reasons[name] = f"does not answer ({type(error).__name__})"
    return JsonResponse(
        {"status": "unavailable" if reasons else "ok", "reasons": reasons},
        status=503 if reasons else 200,
    )
