"""Guessing a password is slowed down."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.test import Client, override_settings

from tests.factories import make_user

pytestmark = pytest.mark.django_db


def attempt(client: Client, name: str, password: str) -> int:
    return client.post(
        "/admin/login/?next=/admin/", {"username": name, "password": password}
    ).status_code


@override_settings(AXES_ENABLED=True)
def test_sign_in_after_too_many_failures_is_refused_even_with_the_right_password() -> None:
    make_user(username="clerk", password="right password")
    make_user(username="other", password="right password")
    client = Client()
    for _ in range(settings.AXES_FAILURE_LIMIT - 1):
        assert attempt(client, "clerk", "guess") == 200
    assert attempt(client, "clerk", "guess") == 429
    assert attempt(client, "clerk", "right password") == 429
    page = client.post("/admin/login/", {"username": "clerk", "password": "guess"}).content.decode()
    assert "15 分钟" in page
    assert attempt(client, "other", "right password") == 302


@override_settings(AXES_ENABLED=True)
def test_sign_in_with_the_right_password_forgets_earlier_failures() -> None:
    make_user(username="clerk", password="right password")
    client = Client()
    for _ in range(settings.AXES_FAILURE_LIMIT - 1):
        attempt(client, "clerk", "guess")
    assert attempt(client, "clerk", "right password") == 302
    client.logout()
    assert attempt(client, "clerk", "guess") == 200
