"""What every kind of test may need from outside: servers and a browser."""

from __future__ import annotations

import os
import shutil

import pytest


def pytest_report_header() -> str:
    if os.environ.get("DATABASE_URL") and os.environ.get("REDIS_URL"):
        return "servers: those of DATABASE_URL and REDIS_URL"
    return "servers: DATABASE_URL or REDIS_URL is not set; bin/test starts both"


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium; without one the test is skipped, or fails under REQUIRE_BROWSER."""
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        if found := shutil.which(name):
            return found
    why = "there is no Chromium on the PATH"
    if os.environ.get("REQUIRE_BROWSER"):
        pytest.fail(f"{why}, and REQUIRE_BROWSER asks for one")
    pytest.skip(why)
