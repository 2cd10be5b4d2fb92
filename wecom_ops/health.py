"""GET /healthz: may this instance serve? 200, or 503 with the reasons."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import redis
from django.conf import settings
from django.db import connections
from django.db.migrations.loader import MigrationLoader
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

# A load balancer asks every few seconds and gives up soon: an answer must beat its patience.
TIMEOUT_SECONDS = 2


class UnhealthyError(Exception):
    """A part that the service needs is not usable."""


def check_postgresql() -> None:
    """Its own short-lived connection: the request's could hang for its full connect timeout."""
    params = connections["default"].get_connection_params()
    keep = {
        key: value
        for key, value in params.items()
        if key not in {"cursor_factory", "context", "prepare_threshold", "server_side_binding"}
    }
    keep["connect_timeout"] = TIMEOUT_SECONDS
    keep["options"] = f"{keep.get('options', '')} -c statement_timeout={TIMEOUT_SECONDS}s".strip()
    with psycopg.connect(**keep) as connection:
        connection.execute("SELECT 1")
        _check_migrations(connection)


def _check_migrations(connection: psycopg.Connection) -> None:
    applied = set(
        connection.execute("SELECT app, name FROM django_migrations").fetchall()
    )
    wanted = set(MigrationLoader(None).disk_migrations or {})
    missing = sorted(f"{app}.{name}" for app, name in wanted - applied)
    if missing:
        raise UnhealthyError(f"migrations not applied: {', '.join(missing)}")


def check_redis() -> None:
    client = redis.Redis.from_url(
        settings.REDIS_URL,
        socket_connect_timeout=TIMEOUT_SECONDS,
        socket_timeout=TIMEOUT_SECONDS,
    )
    try:
        client.ping()
    finally:
        client.close()


CHECKS: dict[str, Callable[[], None]] = {"postgresql": check_postgresql, "redis": check_redis}


@never_cache
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    reasons: dict[str, str] = {}
    for name, check in CHECKS.items():
        try:
            check()
        except (psycopg.Error, redis.RedisError, OSError, UnhealthyError) as error:
            reasons[name] = f"{type(error).__name__}: {error}".strip()
    status = 503 if reasons else 200
    return JsonResponse({"status": "unavailable" if reasons else "ok", "reasons": reasons}, status=status)
