"""/healthz against real and missing servers."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client
from pytest_django import Settings

from wecom_ops.local.files import free_port

pytestmark = pytest.mark.django_db(transaction=True)


def test_health_with_both_servers_is_ok(client: Client) -> None:
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok", "reasons": {}})


def test_health_without_redis_names_redis_alone(client: Client, settings: Settings) -> None:
    settings.REDIS_URL = f"redis://:hidden@127.0.0.1:{free_port()}/0"
    answer = client.get("/healthz")
    assert answer.status_code == 503
    assert set(answer.json()["reasons"]) == {"redis"}
    assert "hidden" not in answer.content.decode()


def test_health_without_postgresql_names_postgresql_alone(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connection.settings_dict, "HOST", "127.0.0.1")
    monkeypatch.setitem(connection.settings_dict, "PORT", str(free_port()))
    answer = client.get("/healthz")
    assert answer.status_code == 503
    assert set(answer.json()["reasons"]) == {"postgresql"}


def test_health_with_a_migration_missing_says_which(client: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM django_migrations WHERE app = 'sessions' RETURNING app, name, applied"
        )
        row = cursor.fetchone()
    try:
        answer = client.get("/healthz")
    finally:
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO django_migrations (app, name, applied) VALUES (%s, %s, %s)", row
            )
    assert answer.status_code == 503
    assert "sessions.0001_initial" in answer.json()["reasons"]["postgresql"]


def test_health_by_post_is_not_allowed(client: Client) -> None:
    assert client.post("/healthz").status_code == 405
