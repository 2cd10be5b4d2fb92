"""Fixtures of these tests."""

from collections.abc import Iterator
from typing import Any

import pytest

from batches.engine.alert import Robot
from batches.models import Lane
from batches.services import acting
from tests.factories import make_lane
from tests.integration.store.cleaning import _django_db_helper

from .robot import Clock, Group, listening_group
from .stage import Stage

__all__ = ["_django_db_helper"]


@pytest.fixture
def stage(db: None, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Turns are played by the tests themselves: nobody else is woken."""
    monkeypatch.setattr(acting, "wake_lanes", lambda: True)
    return Stage()


@pytest.fixture
def lane(db: None) -> Lane:
    return make_lane()


@pytest.fixture
def group(settings: Any) -> Iterator[Group]:
    """The installation's robot."""
    with listening_group() as found:
        settings.ALERT_WEBHOOK_URL = found.url
        settings.PUBLIC_URL = ""
        settings.ENVIRONMENT_LABEL = ""
        yield found


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def robot(clock: Clock) -> Robot:
    return Robot(clock=clock)
