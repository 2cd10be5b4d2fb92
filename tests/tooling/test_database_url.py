"""DATABASE_URL in every form that libpq takes."""

from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured

from wecom_ops.database import database_from_uri


def test_parse_uri_full_maps_each_part() -> None:
    entry = database_from_uri("postgresql://ops:p%40ss@db.internal:6432/batch?sslmode=verify-full")
    assert entry["ENGINE"] == "django.db.backends.postgresql"
    assert (entry["USER"], entry["PASSWORD"]) == ("ops", "p@ss")
    assert (entry["HOST"], entry["PORT"], entry["NAME"]) == ("db.internal", "6432", "batch")
    assert entry["OPTIONS"]["sslmode"] == "verify-full"


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://ops@/batch?host=/run/my%20sockets",
        "postgresql://ops@%2Frun%2Fmy%20sockets/batch",
        "dbname=batch user=ops host='/run/my sockets'",
    ],
)
def test_parse_uri_socket_directory_becomes_host(uri: str) -> None:
    entry = database_from_uri(uri)
    assert (entry["HOST"], entry["NAME"], entry["USER"]) == ("/run/my sockets", "batch", "ops")
    assert "PORT" not in entry


def test_parse_uri_several_hosts_keeps_them_for_libpq() -> None:
    entry = database_from_uri("postgresql://a:1,b:2/batch?target_session_attrs=read-write")
    assert (entry["HOST"], entry["PORT"]) == ("a,b", "1,2")
    assert entry["OPTIONS"]["target_session_attrs"] == "read-write"


def test_parse_uri_own_application_name_wins() -> None:
    entry = database_from_uri("postgresql:///batch?application_name=mine&connect_timeout=3")
    assert entry["OPTIONS"]["application_name"] == "mine"
    assert entry["OPTIONS"]["connect_timeout"] == "3"


@pytest.mark.parametrize("uri", ["mysql://h/db", "postgresql://h:1/db?nonsense=1"])
def test_parse_uri_unreadable_is_refused(uri: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="not a libpq URI"):
        database_from_uri(uri)


def test_parse_uri_without_database_is_refused() -> None:
    with pytest.raises(ImproperlyConfigured, match="no database"):
        database_from_uri("postgresql://ops@db")
