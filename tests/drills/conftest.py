"""Fixtures of the drills."""

from collections.abc import Callable

import pytest

from tests.integration.store.cleaning import _django_db_helper

__all__ = ["_django_db_helper", "tell"]


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Say how a drill went, also when it went well."""

    def say(line: str) -> None:
        with capsys.disabled():
            print(f"\n{line}", flush=True)

    return say
