"""In any 60 s, and the margin beyond, no more permits than the rate allows."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings

from batches.gates.script import MINUTE, SPAN, TOLERANCE, Grant

from .reference import START, ReferenceGate, Schedule, Step, overfull, play, schedules


@settings(max_examples=200, deadline=None)
@given(schedules())
def test_any_schedule_of_takes_losses_and_changes_keeps_the_rate(schedule: Schedule) -> None:
    gate = ReferenceGate(schedule.largest, tolerance=schedule.tolerance)
    assert overfull(play(gate, schedule).calls) == []


@pytest.mark.parametrize(("rate", "large"), [(2, 2), (4, 2), (4, 3), (5, 4), (6, 2), (6, 6)])
def test_every_order_of_small_calls_large_calls_and_flushes_keeps_the_rate(
    rate: int, large: int
) -> None:
    """What chance would seldom find: each call leaves at the very moment it may."""
    for acts in itertools.product((1, large, "flush"), repeat=7):
        gate = ReferenceGate(large)
        now = START
        calls: list[tuple[int, int, int]] = []
        for act in acts:
            if isinstance(act, str):
                gate.flush()
                continue
            while not (answer := gate.take((act,), rate, now)).granted:
                now += answer.wait_ms * 1000
            calls.append((now, act, rate))
        assert overfull(calls) == [], acts


def test_permits_given_back_one_by_one_keep_the_rate() -> None:
    gate = ReferenceGate(tolerance=60 * TOLERANCE)
    gate.take((), 20, START)
    now = START + MINUTE
    calls: list[tuple[int, int, int]] = []
    for _ in range(100):
        answer = gate.take((1, 1, 1, 1), 20, now)
        used = answer.granted
        if used > 1:
            used -= 1
            gate.give_back(answer, 1)
        calls += [(now, 1, 20)] * used
        now += 1_000_000
    assert len(calls) > 20
    assert overfull(calls) == []


def test_a_shorter_step_is_caught_by_the_window() -> None:
    """The check itself can fail."""
    greedy = Schedule(1, TOLERANCE, 20, [Step("take when due", sizes=(1,))] * 200)
    assert overfull(play(ReferenceGate(span=MINUTE - TOLERANCE), greedy).calls)


def greedily(gate: ReferenceGate, rate: int, *lanes: tuple[int, ...]) -> list[int]:
    """Targets per lane in twenty minutes, each always asking for calls of its sizes."""
    rng = random.Random(5)
    now, end = START, START + 20 * MINUTE
    got = [0] * len(lanes)
    while now < end:
        waits = []
        for lane, sizes in rng.sample(list(enumerate(lanes)), len(lanes)):
            answer = gate.take(sizes, rate, now)
            got[lane] += sum(sizes[: answer.granted])
            waits.append(answer.wait_ms)
        now += max(1, min(waits)) * 1000
    return got


@pytest.mark.parametrize("rate", [1, 7, 60, 600, 1200])
def test_greedy_taker_gets_the_rate_but_for_two_percent(rate: int) -> None:
    [got] = greedily(ReferenceGate(), rate, (1,))
    assert 0.98 * rate * 20 - 2 <= got <= rate * 20


@pytest.mark.parametrize(
    ("rate", "size", "share"), [(3000, 50, 0.96), (600, 50, 0.9), (600, 20, 0.95), (50, 50, 0.9)]
)
def test_calls_of_many_targets_get_most_of_the_rate(rate: int, size: int, share: float) -> None:
    [got] = greedily(ReferenceGate(largest=size), rate, (size, size))
    assert share * rate * 20 <= got <= rate * 20


def test_large_calls_and_small_ones_both_get_their_turns() -> None:
    large, small = greedily(ReferenceGate(largest=50), 600, (50,), (1,))
    turns = large // 50, small
    assert min(turns) >= 0.4 * sum(turns)
    assert large + small >= 0.85 * 600 * 20


def test_call_larger_than_the_rate_never_goes() -> None:
    gate = ReferenceGate(largest=5)
    gate.take((5,), 4, START)
    assert gate.take((5, 1), 4, START + 10 * MINUTE).granted == 0
    assert gate.take((4,), 4, START + 10 * MINUTE).granted == 1


def test_taker_late_within_the_tolerance_loses_nothing() -> None:
    rate = 600
    step = SPAN // rate
    gate = ReferenceGate()
    gate.take((1,), rate, START)
    now, got = START + 10 * MINUTE, 0
    for _ in range(100):
        got += gate.take((1,) * 10, rate, now).granted
        now += 2 * step  # asks half as often as permits fall due
    assert got >= 198


def test_idle_gate_gives_no_more_than_the_tolerance_holds() -> None:
    gate = ReferenceGate()
    gate.take((1,), 600, START)
    answer = gate.take((1,) * 1000, 600, START + 60 * MINUTE)
    assert answer.granted == 1 + TOLERANCE // (SPAN // 600 + 1)


def test_clock_set_back_begins_anew_instead_of_waiting_for_it() -> None:
    gate = ReferenceGate()
    gate.take((1,), 60, START)
    assert gate.take((1,), 60, START + MINUTE).granted == 1
    back = START - 60 * MINUTE
    assert gate.take((1,), 60, back).granted == 0
    assert gate.take((1,), 60, back + SPAN // 60 + TOLERANCE + 1).granted == 1


def test_grant_cut_in_two_loses_nothing() -> None:
    used, unused = Grant(3, 5, ("a", "b", "c"), ("w", "x", "y", "z")).keep(1)
    assert (used.granted, used.tokens, used.trail) == (1, ("a",), ("w", "x"))
    assert (unused.granted, unused.tokens, unused.trail) == (2, ("b", "c"), ("x", "y", "z"))
