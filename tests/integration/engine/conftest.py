"""Fixtures of these tests."""

import pytest

from batches.services import acting
from tests.integration.store.cleaning import _django_db_helper

from .stage import Stage

__all__ = ["_django_db_helper"]


@pytest.fixture
def stage(db: None, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Turns are played by the tests themselves: nobody else is woken."""
    monkeypatch.setattr(acting, "wake_lanes", lambda: True)
    return Stage()
