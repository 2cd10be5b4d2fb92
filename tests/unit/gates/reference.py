"""The arithmetic of take.lua and give_back.lua once more, in Python, and what it must hold."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

from hypothesis import strategies as st

from batches.gates.script import MARGIN, MINUTE, SPAN, TOLERANCE

#: an installation's first moment, µs
START = 1_800_000_000_000_000


@dataclass(frozen=True)
class Answer:
    granted: int
    wait_ms: int
    slot: int
    step: int


class Gate(Protocol):
    """What a schedule plays on."""

    def take(self, n: int, rate: int, now: int) -> Answer: ...
    def give_back(self, answer: Answer, unused: int) -> None: ...
    def flush(self) -> None: ...
    def forget_scripts(self) -> None: ...


@dataclass
class ReferenceGate:
    """The rate alone."""

    since: int | None = None
    last: int | None = None
    fresh: bool = True
    span: int = SPAN
    tolerance: int = TOLERANCE

    def take(self, n: int, rate: int, now: int) -> Answer:
        fresh, self.fresh = self.fresh, False
        if fresh or self.since is None or self.since > now or (self.last or 0) > now:
            self.since, self.last = now, None
        step = math.ceil(self.span / rate)
        slot = max(self.since + self.tolerance + step, now - self.tolerance)
        if self.last is not None:
            slot = max(slot, self.last + step)
        granted = min(n, (now - slot) // step + 1) if slot <= now else 0
        last = slot + (granted - 1) * step
        if granted:
            self.last = last
        return Answer(granted, math.ceil(max(0, last + step - now) / 1000), last, step)

    def give_back(self, answer: Answer, unused: int) -> None:
        if self.last == answer.slot:
            self.last -= unused * answer.step

    def flush(self) -> None:
        self.since = self.last = None

    def forget_scripts(self) -> None:
        self.fresh = True


@dataclass(frozen=True)
class Step:
    """One act of a schedule."""

    act: str
    amount: int


def _often(act: str, least: int, most: int, times: int = 1) -> list[st.SearchStrategy[Step]]:
    return [st.builds(Step, st.just(act), st.integers(least, most))] * times


#: what lanes do to a gate all the time, and what happens to it on bad days
_TAKES = _often("take when due", 1, 4, times=6) + _often("take now", 0, 4, times=2)
_TAKES += _often("pass", 0, TOLERANCE)
_GIVE_BACK = _often("give back", 1, 3)
_LOSSES = _often("flush", 0, 0) + _often("forget scripts", 0, 0)
_CHANGES = _often("set rate", 1, 8) + _often("pass steps", 1, 2)
#: each kind of trouble alone, so that none hides what another does, and all at once
schedules = st.sampled_from(
    [_GIVE_BACK, _LOSSES, _CHANGES, _GIVE_BACK + _LOSSES + _CHANGES]
).flatmap(lambda trouble: st.lists(st.one_of(_TAKES + trouble), min_size=30, max_size=150))


@dataclass
class Played:
    """What a schedule came to: a time and the rate in force per permit used; every answer."""

    permits: list[tuple[int, int]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)


def play(gate: Gate, rate: int, schedule: list[Step]) -> Played:
    """Play a schedule from the installation's first moment on."""
    played = Played()
    now = START
    newest: Answer | None = None
    for step in schedule:
        match step.act:
            case "take when due" | "take now":
                if step.act == "take when due" and played.answers:
                    now += played.answers[-1].wait_ms * 1000
                newest = gate.take(step.amount, rate, now)
                played.answers.append(newest)
                played.permits += [(now, rate)] * newest.granted
            case "pass":
                now += step.amount
            case "pass steps":
                now += step.amount * SPAN // rate
            case "set rate":
                rate = step.amount
            case "give back":
                if newest is not None and newest.granted:
                    unused = min(step.amount, newest.granted)
                    gate.give_back(newest, unused)
                    del played.permits[len(played.permits) - unused :]
                    newest = None
            case "flush":
                gate.flush()
            case "forget scripts":
                gate.forget_scripts()
    return played


def overfull(permits: list[tuple[int, int]], window: int = MINUTE + MARGIN) -> list[int]:
    """Moments at which a window begins that holds more permits than any rate in it allows."""
    return [
        began
        for i, (began, _) in enumerate(permits)
        if len(inside := [rate for at, rate in permits[i:] if at < began + window]) > max(inside)
    ]
