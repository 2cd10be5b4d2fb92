"""The steps of a turn by name, so that a drill can let a lane die at exactly one of them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

#: seconds after which a request that was handed to the client has certainly been written
WRITTEN = 0.1


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class _Crash:
    """Kills this process at the n-th passing of one step."""

    def __init__(self, order: str) -> None:
        self._label, _, times = order.partition(":")
        self._left = int(times or 1)

    def passes(self, label: str) -> None:
        """The process has come to this step."""
        if self._is_due(label):
            _die()

    def passes_soon(self, label: str) -> None:
        """It will have passed this step in a moment, while it waits."""
        if self._is_due(label):
            asyncio.get_running_loop().call_later(WRITTEN, _die)

    def _is_due(self, label: str) -> bool:
        self._left -= label == self._label
        return label == self._label and self._left == 0


def _go_on(label: str) -> None:
    """What a step does outside a drill."""


def _chosen() -> tuple[Callable[[str], None], Callable[[str], None]]:
    order = os.environ.get("LANE_CRASH_AT", "")
    if not order:
        return _go_on, _go_on
    crash = _Crash(order)
    return crash.passes, crash.passes_soon


#: `LANE_CRASH_AT=claim.committed:3` in the environment makes the third passing the last
step, step_soon = _chosen()
