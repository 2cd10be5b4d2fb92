"""Looks into a running lane from outside: time and size of each step, and whose CPU it is."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from types import FrameType
from typing import Any

from batches.engine import claiming, lane, settling, viewing


@dataclass
class Step:
    """How often, how many at a time, and seconds spent awaiting it."""

    calls: int = 0
    size: int = 0
    wall: float = 0.0


@dataclass
class Steps:
    """All that is known of one turn."""

    steps: dict[str, Step] = field(default_factory=dict)
    cpu: Counter[str] = field(default_factory=Counter)
    #: seconds by which requests left after their account was due, where asked for
    late: list[float] = field(default_factory=list)
    began: float = 0.0
    began_cpu: float = 0.0
    ended: float = 0.0
    ended_cpu: float = 0.0

    def told(self) -> dict[str, Any]:
        return {
            "steps": {name: asdict(step) for name, step in self.steps.items()},
            "cpu_samples": dict(self.cpu),
            "late": sorted(self.late),
            "seconds": self.ended - self.began,
            "cpu": self.ended_cpu - self.began_cpu,
        }

    def mark(self, name: str) -> None:
        """The turn's work is from the first claim to the last settle."""
        if name == "claim" and not self.began:
            self.began, self.began_cpu = time.monotonic(), time.process_time()
        if name == "settle":
            self.ended = time.monotonic()


def watch(steps: Steps, *, sample: bool, lateness: bool) -> None:
    """Wrap the turn's steps; none of it is in the engine itself."""
    _wrap(steps, claiming.store, "claim", lambda *_, wants, **__: len(wants))
    _wrap(steps, settling, "settle", lambda _, batch: len(batch))
    _wrap(steps, viewing.store, "next_items", lambda *_, after, **__: len(after), name="fetch")
    _watch_sends(steps)
    _wrap(steps, lane.Turn, "_tick", lambda *_: 1, name="tick")
    if lateness:
        _watch_lateness(steps)
    if sample:
        signal.signal(signal.SIGPROF, lambda _, frame: _sampled(steps, frame))
        signal.setitimer(signal.ITIMER_PROF, 0.005, 0.005)


def unwatch(steps: Steps) -> None:
    """No more samples: an interpreter on its way out would die of one."""
    steps.ended_cpu = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, 0)


def _wrap(
    steps: Steps, owner: Any, attribute: str, size: Callable[..., int], name: str = ""
) -> None:
    inner: Callable[..., Awaitable[Any]] = getattr(owner, attribute)
    name = name or attribute
    step = steps.steps[name] = Step()

    async def timed(*args: Any, **kwargs: Any) -> Any:
        steps.mark(name if name == "claim" else "")
        started = time.monotonic()
        try:
            return await inner(*args, **kwargs)
        finally:
            step.wall += time.monotonic() - started
            step.calls += 1
            step.size += size(*args, **kwargs)
            steps.mark(name if name == "settle" else "")

    setattr(owner, attribute, timed)


def _watch_sends(steps: Steps) -> None:
    """By what flights say of themselves: a wrapper around each would cost what it measures."""
    land = claiming.Claimer._land
    step = steps.steps["send"] = Step()

    def landing(claimer: claiming.Claimer, flight: Any, settled: Any) -> None:
        step.calls += 1
        step.size += len(settled.item_ids)
        step.wall += (settled.duration_ms or 0) / 1000
        land(claimer, flight, settled)

    claiming.Claimer._land = landing  # type: ignore[method-assign]


def _watch_lateness(steps: Steps) -> None:
    due: dict[int, float] = {}
    pick_due, fly = claiming.pick_due, claiming.fly

    def picking(*args: Any, **kwargs: Any) -> Any:
        picks = pick_due(*args, **kwargs)
        for pick in picks:
            due[pick.account.account_id] = pick.account.due
        return picks

    async def flying(flight: Any, *args: Any, **kwargs: Any) -> Any:
        # the first seconds are the start of a turn: every account is due at once
        if time.monotonic() > steps.began + 10:
            steps.late.append(time.monotonic() - due[flight.account.account_id])
        return await fly(flight, *args, **kwargs)

    claiming.pick_due = picking
    claiming.fly = flying


#: a stack belongs to the innermost of these that it goes through
_OWNERS = (
    ("/engine/sending.py", "send"),
    ("/engine/transport.py", "send"),
    ("/aiohttp/", "send"),
    ("/gateways/", "send"),
    ("/engine/settling.py", "settle"),
    ("/store/settle.py", "settle"),
    ("/engine/viewing.py", "look"),
    ("/engine/picking.py", "claim"),
    ("/engine/claiming.py", "claim"),
    ("/store/claim.py", "claim"),
    ("/engine/lane.py", "tick"),
)


def _sampled(steps: Steps, frame: FrameType | None) -> None:
    while frame is not None:
        name = frame.f_code.co_filename
        for part, owner in _OWNERS:
            if part in name:
                steps.cpu[owner] += 1
                return
        frame = frame.f_back
    steps.cpu["loop"] += 1
