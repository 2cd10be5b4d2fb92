"""In any 60 s, and the margin beyond, no more permits than the rate allows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batches.gates.script import MINUTE, SPAN, TOLERANCE, Grant

from .reference import START, ReferenceGate, Step, overfull, play, schedules


@settings(max_examples=150, deadline=None)
@given(rate=st.integers(1, 8), schedule=schedules)
def test_any_schedule_of_takes_flushes_and_changes_keeps_the_rate(
    rate: int, schedule: list[Step]
) -> None:
    played = play(ReferenceGate(), rate, schedule)
    assert overfull(played.permits) == []


def test_a_shorter_step_is_caught_by_the_window() -> None:
    """The check itself can fail."""
    greedy = [Step("take when due", 1)] * 200
    assert overfull(play(ReferenceGate(span=MINUTE - TOLERANCE), 20, greedy).permits)


@pytest.mark.parametrize("rate", [1, 7, 60, 600, 1200])
def test_greedy_taker_gets_the_rate_but_for_two_percent(rate: int) -> None:
    gate = ReferenceGate()
    now, got, end = START, 0, START + 20 * MINUTE
    while now < end:
        answer = gate.take(1, rate, now)
        got += answer.granted
        now += max(1000, answer.wait_ms * 1000)
    assert 0.98 * rate * 20 - 2 <= got <= rate * 20


def test_taker_late_within_the_tolerance_loses_nothing() -> None:
    rate = 600
    step = SPAN // rate
    gate = ReferenceGate()
    gate.take(1, rate, START)
    now, got = START + 10 * MINUTE, 0
    for _ in range(100):
        got += gate.take(10, rate, now).granted
        now += 2 * step  # asks half as often as permits fall due
    assert got >= 198


def test_idle_gate_gives_no_more_than_the_tolerance_holds() -> None:
    gate = ReferenceGate()
    gate.take(1, 600, START)
    answer = gate.take(1000, 600, START + 60 * MINUTE)
    assert answer.granted == 1 + TOLERANCE // (SPAN // 600 + 1)


def test_clock_set_back_begins_anew_instead_of_waiting_for_it() -> None:
    gate = ReferenceGate()
    gate.take(1, 60, START)
    assert gate.take(1, 60, START + MINUTE).granted == 1
    back = START - 60 * MINUTE
    assert gate.take(1, 60, back).granted == 0
    assert gate.take(1, 60, back + SPAN // 60 + TOLERANCE + 1).granted == 1


def test_grant_cut_in_two_loses_no_token() -> None:
    used, unused = Grant(3, 5, ("a", "b", "c"), "100", "7").keep(1)
    assert (used.granted, used.tokens) == (1, ("a",))
    assert (unused.granted, unused.tokens, unused.slot, unused.step) == (2, ("b", "c"), "100", "7")
