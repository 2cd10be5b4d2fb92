"""The queue is not what these tests are about: waking lanes is only counted."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def woken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """One entry per call of `wake_lanes`."""
    calls: list[bool] = []
    monkeypatch.setattr("batches.services.acting.wake_lanes", lambda: calls.append(True))
    return calls
