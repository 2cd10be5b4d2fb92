"""A real Chromium on a live server; people signed in by cookie."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import Browser, Page, sync_playwright

from tests.factories import make_user
from tests.integration.store.cleaning import _django_db_helper

__all__ = ["_django_db_helper"]

EVERYTHING = (
    "view_job",
    "operate_job",
    "cancel_job",
    "approve_job",
    "terminate_job",
    "reconcile_item",
    "view_account",
    "change_account",
    "view_gateway",
    "change_gateway",
)
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="package")
def browser(chromium: str) -> Iterator[Browser]:
    """One browser for the tests of this folder.

    The synchronous driver keeps an event loop running in this thread: Django has to be told, and
    it must be gone before other tests start loops of their own.
    """
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=chromium, args=list(_ARGUMENTS))
        yield started
        started.close()
    if before is None:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def operator(transactional_db: None) -> User:
    return make_user(*EVERYTHING, username="operator")


@pytest.fixture
def complaints() -> list[str]:
    """What the browser's console said: blocked by the policy, missing, or an error."""
    return []


Open = Callable[..., Page]


@pytest.fixture
def open_page(
    browser: Browser, live_server: Any, operator: User, complaints: list[str]
) -> Iterator[Open]:
    """Open an address in a new window, signed in; whatever the console says is a failure."""
    contexts = []

    def open_(
        address: str, *, width: int = 1440, scheme: str = "light", signed_in: bool = True
    ) -> Page:
        context = browser.new_context(
            base_url=live_server.url,
            viewport={"width": width, "height": 900},
            color_scheme=scheme,  # type: ignore[arg-type]
            timezone_id="Asia/Shanghai",
        )
        context.set_default_timeout(10_000)
        contexts.append(context)
        if signed_in:
            client = Client()
            client.force_login(operator)
            session = client.cookies[settings.SESSION_COOKIE_NAME].value
            context.add_cookies(
                [
                    {
                        "name": settings.SESSION_COOKIE_NAME,
                        "value": session,
                        "url": live_server.url,
                    }
                ]
            )
        page = context.new_page()
        page.on("console", lambda said: _note(complaints, said.type, said.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []


def _note(complaints: list[str], kind: str, text: str) -> None:
    if kind in ("error", "warning"):
        complaints.append(text)
