"""The arithmetic of take.lua and give_back.lua once more, in Python, and what it must hold."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

from hypothesis import strategies as st

from batches.gates.script import MARGIN, MINUTE, SPAN, TOLERANCE

#: an installation's first moment, µs
START = 1_800_000_000_000_000


Sizes = tuple[int, ...]
#: what a gate remembers of its latest permit: slot, targets of the call, largest call of late
Last = tuple[int, int, int]
ASKED = 120_000_000


@dataclass(frozen=True)
class Answer:
    granted: int
    wait_ms: int
    #: `last` before and after each permit
    trail: tuple[Last | None, ...]


class Gate(Protocol):
    """What a schedule plays on."""

    def take(self, sizes: Sizes, rate: int, now: int) -> Answer: ...
    def give_back(self, answer: Answer, unused: int) -> None: ...
    def flush(self) -> None: ...
    def save(self) -> None: ...
    def restart(self) -> None: ...


@dataclass
class ReferenceGate:
    """The rate alone."""

    #: most targets that any call may have
    largest: int = 1
    since: int | None = None
    last: Last | None = None
    asked: tuple[int, int] | None = None
    fresh: bool = True
    tolerance: int = TOLERANCE
    span: int = 0
    saved: tuple[int | None, Last | None, tuple[int, int] | None] = (None, None, None)

    def __post_init__(self) -> None:
        self.span = self.span or MINUTE + MARGIN + self.tolerance

    def take(self, sizes: Sizes, rate: int, now: int) -> Answer:
        fresh, self.fresh = self.fresh, False
        if fresh or self.since is None or self.since > now or (self.last and self.last[0] > now):
            self.since, self.last = now, None
        largest = min(rate, self._largest_of_late(max((1, *sizes)), now))
        step = math.ceil(self.span / (rate + 1 - largest))

        def gap(targets: int) -> int:
            return min(targets * step, self.span + self.tolerance)

        slot = max(
            self.since + self.tolerance + gap(self.largest + largest - 1), now - self.tolerance
        )
        if self.last is not None:
            at, targets, former = self.last
            slot = max(slot, at + gap(targets + (largest - 1 if largest > former else 0)))
        trail = [self.last]
        wait = 0
        for size in sizes:
            if slot > now:
                break
            if size > rate:
                wait = 60_000_000
                break
            self.last = (slot, size, largest)
            trail.append(self.last)
            slot += gap(size)
        return Answer(len(trail) - 1, math.ceil(max(wait, slot - now) / 1000), tuple(trail))

    def _largest_of_late(self, largest: int, now: int) -> int:
        if self.asked and self.asked[1] + ASKED > now and self.asked[0] > largest:
            return self.asked[0]
        if largest > 1:
            self.asked = (largest, now)
        return largest

    def give_back(self, answer: Answer, unused: int) -> None:
        if self.last == answer.trail[-1]:
            self.last = answer.trail[-1 - unused]

    def flush(self) -> None:
        self.since = self.last = self.asked = None

    def save(self) -> None:
        self.saved = (self.since, self.last, self.asked)

    def restart(self) -> None:
        self.since, self.last, self.asked = self.saved
        self.fresh = True


@dataclass(frozen=True)
class Step:
    """One act of a schedule."""

    act: str
    amount: int = 0
    sizes: Sizes = ()


def _often(act: str, least: int, most: int, times: int = 1) -> list[st.SearchStrategy[Step]]:
    return [st.builds(Step, st.just(act), st.integers(least, most))] * times


def _takes(act: str, most: int, times: int) -> list[st.SearchStrategy[Step]]:
    """Takes of up to four calls, most of them of one target."""
    size = st.one_of(st.just(1), st.integers(1, most)) if most > 1 else st.just(1)
    sizes = st.lists(size, max_size=4).map(tuple)
    return [st.builds(Step, st.just(act), sizes=sizes)] * times


_GIVE_BACK = _often("give back", 1, 3) + _often("give back former", 1, 3)
_LOSSES = _often("flush", 0, 0) + _often("save", 0, 0) + _often("restart", 0, 0)
_CHANGES = _often("set rate", 1, 8) + _often("pass steps", 1, 2)
#: each kind of trouble alone, so that none hides what another does, and all at once
_TROUBLES = [[], _GIVE_BACK, _LOSSES, _CHANGES, _GIVE_BACK + _LOSSES + _CHANGES]


@dataclass(frozen=True)
class Schedule:
    """A gate's constants, and what happens to it."""

    largest: int
    tolerance: int
    rate: int
    steps: list[Step]


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """One to three spells, each of takes of its own kind."""
    largest = draw(st.sampled_from([1, 3, 6]))
    # a long tolerance gives several permits at once, which the real one does at high rates only
    tolerance = draw(st.sampled_from([TOLERANCE, 60 * TOLERANCE]))
    trouble = draw(st.sampled_from(_TROUBLES))
    steps: list[Step] = []
    for most in draw(st.lists(st.sampled_from([1, largest]), min_size=1, max_size=3)):
        takes = _takes("take when due", most, 6) + _takes("take now", most, 2)
        act = st.one_of(takes + _often("pass", 0, TOLERANCE) + trouble)
        steps += draw(st.lists(act, min_size=5, max_size=60))
        # what was asked for is forgotten, now and then
        steps += draw(st.sampled_from([[], [], [Step("pass", 2 * MINUTE)]]))
    return Schedule(largest, tolerance, draw(st.integers(1, 8)), steps)


@dataclass
class Played:
    """What a schedule came to: time, targets and rate in force per call made; every answer."""

    calls: list[tuple[int, int, int]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)


def play(gate: Gate, schedule: Schedule) -> Played:
    """Play a schedule from the installation's first moment on."""
    played = Played()
    now, rate = START, schedule.rate
    taken: list[tuple[Answer, list[tuple[int, int, int]]]] = []
    for step in schedule.steps:
        match step.act:
            case "take when due" | "take now":
                if step.act == "take when due" and played.answers:
                    now += played.answers[-1].wait_ms * 1000
                answer = gate.take(step.sizes, rate, now)
                played.answers.append(answer)
                taken.append((answer, [(now, size, rate) for size in step.sizes[: answer.granted]]))
            case "pass":
                now += step.amount
            case "pass steps":
                now += step.amount * SPAN // rate
            case "set rate":
                rate = step.amount
            case "give back" | "give back former":
                which = -1 if step.act == "give back" else -2
                if len(taken) >= 2 and (calls := taken[which][1]):
                    unused = min(step.amount, len(calls))
                    gate.give_back(taken[which][0], unused)
                    taken[which] = (Answer(0, 0, ()), [])
                    played.calls += calls[: len(calls) - unused]
            case "flush" | "save" | "restart":
                getattr(gate, step.act)()
    played.calls += (call for _, calls in taken for call in calls)
    played.calls.sort()
    return played


def overfull(calls: list[tuple[int, int, int]], window: int = MINUTE + MARGIN) -> list[int]:
    """Moments at which a window begins that holds more targets than any rate in it allows."""
    return [
        began
        for i, (began, _, _) in enumerate(calls)
        if sum(size for at, size, _ in calls[i:] if at < began + window)
        > max(rate for at, _, rate in calls[i:] if at < began + window)
    ]
