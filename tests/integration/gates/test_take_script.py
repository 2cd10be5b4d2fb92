"""take.lua and give_back.lua on a real server: the reference's arithmetic, and its law."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
import redis
from hypothesis import HealthCheck, given, settings

from batches.gates.script import (
    GIVE_BACK,
    MINUTE,
    TAKE,
    TOLERANCE,
    GateKeys,
    Grant,
    give_back_args,
    take_call,
)
from tests.unit.gates.reference import (
    START,
    Answer,
    ReferenceGate,
    Schedule,
    Sizes,
    overfull,
    play,
    schedules,
)


@dataclass
class LuaGate:
    """The scripts, told what time it is."""

    client: redis.Redis
    largest: int = 1
    tolerance: int = TOLERANCE
    fresh: bool = True
    saved: dict[str, str] = field(default_factory=dict)
    prefix: str = field(default_factory=lambda: f"test-gate:{uuid.uuid4().hex}")

    @property
    def keys(self) -> GateKeys:
        return GateKeys.named(self.prefix)

    @property
    def names(self) -> tuple[str, str, str, str]:
        return f"{self.prefix}:since", self.keys.last, self.keys.calls, self.keys.asked

    def run(
        self,
        wanted: int | Sequence[int],
        now: int,
        *,
        rate: int | None,
        most: int | None,
        ttl_ms: int,
    ) -> Grant:
        call = take_call(
            self.keys,
            wanted,
            rate_per_min=rate,
            max_concurrent=most,
            token_ttl_ms=ttl_ms,
            largest=self.largest,
        )
        call = replace(call, tolerance=self.tolerance)
        args = call.args(fresh=self.fresh, now=now)
        self.fresh = False
        return call.grant(self.client.eval(TAKE.text, 4, *self.names, *args))

    def take(self, sizes: Sizes, rate: int, now: int) -> Answer:
        grant = self.run(sizes, now, rate=rate, most=None, ttl_ms=0)
        trail = (tuple(map(int, value.split())) if value else None for value in grant.trail)
        return Answer(grant.granted, grant.wait_ms, tuple(trail))

    def hand_back(self, unused: Grant) -> None:
        names = self.keys.last, self.keys.calls
        self.client.eval(GIVE_BACK.text, 2, *names, *give_back_args(unused))

    def give_back(self, answer: Answer, unused: int) -> None:
        trail = tuple(" ".join(map(str, last)) if last else "" for last in answer.trail)
        self.hand_back(Grant(answer.granted, trail=trail).keep(answer.granted - unused)[1])

    def flush(self) -> None:
        self.client.delete(*self.names)

    def save(self) -> None:
        names = self.names
        self.saved = {n: v for n in (*names[:2], names[3]) if (v := self.client.get(n)) is not None}

    def restart(self) -> None:
        self.flush()
        if self.saved:
            self.client.mset(self.saved)
        self.fresh = True


@pytest.fixture
def lua_gate(gate_redis: redis.Redis) -> LuaGate:
    return LuaGate(gate_redis)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(schedule=schedules())
def test_any_schedule_answers_as_the_reference_and_keeps_the_rate(
    gate_redis: redis.Redis, schedule: Schedule
) -> None:
    gate = LuaGate(gate_redis, schedule.largest, schedule.tolerance)
    try:
        played = play(gate, schedule)
    finally:
        gate.flush()
    reference = ReferenceGate(schedule.largest, tolerance=schedule.tolerance)
    assert played == play(reference, schedule)
    assert overfull(played.calls) == []


def take(gate: LuaGate, n: int, at_ms: int, *, most: int, ttl_ms: int = 30_000) -> Grant:
    return gate.run(n, START + at_ms * 1000, rate=None, most=most, ttl_ms=ttl_ms)


def test_calls_at_once_are_limited_until_they_are_released(lua_gate: LuaGate) -> None:
    first = take(lua_gate, 3, 0, most=4)
    second = take(lua_gate, 3, 1, most=4)
    assert (first.granted, second.granted) == (3, 1)
    assert len({*first.tokens, *second.tokens}) == 4
    full = take(lua_gate, 1, 2, most=4)
    assert (full.granted, full.tokens) == (0, ())
    assert 0 < full.wait_ms <= 50
    lua_gate.client.zrem(lua_gate.names[2], *first.tokens)
    assert take(lua_gate, 9, 3, most=4).granted == 3
    lua_gate.flush()


def test_places_of_a_killed_lane_come_back_when_its_tokens_run_out(lua_gate: LuaGate) -> None:
    take(lua_gate, 2, 0, most=2, ttl_ms=30_000)
    assert take(lua_gate, 1, 29_999, most=2).granted == 0
    assert take(lua_gate, 1, 29_999, most=2).wait_ms == 1
    assert take(lua_gate, 2, 30_000, most=2).granted == 2
    lua_gate.flush()


def test_most_calls_lowered_below_those_under_way_gives_none(lua_gate: LuaGate) -> None:
    take(lua_gate, 5, 0, most=5)
    assert take(lua_gate, 1, 1, most=2).granted == 0
    assert take(lua_gate, 1, 2, most=6).granted == 1
    lua_gate.flush()


def test_full_gate_spends_no_rate(lua_gate: LuaGate) -> None:
    def both(n: int, at: int) -> Grant:
        return lua_gate.run(n, at, rate=60, most=1, ttl_ms=600_000)

    both(0, START)
    later = START + MINUTE
    assert both(1, later).granted == 1
    assert both(1, later + MINUTE).granted == 0
    lua_gate.client.delete(lua_gate.names[2])
    assert both(1, later + MINUTE).granted == 1
    lua_gate.flush()


def test_given_back_places_are_free_again(lua_gate: LuaGate) -> None:
    grant = take(lua_gate, 3, 0, most=3)
    _, unused = grant.keep(1)
    lua_gate.hand_back(unused)
    assert take(lua_gate, 3, 1, most=3).granted == 2
    lua_gate.flush()


def test_clock_set_back_begins_anew(lua_gate: LuaGate) -> None:
    lua_gate.take((1,), 60, START)
    assert lua_gate.take((1,), 60, START + MINUTE).granted == 1
    back = lua_gate.take((1,), 60, START - MINUTE)
    assert back.granted == 0
    assert lua_gate.take((1,), 60, START - MINUTE + back.wait_ms * 1000).granted == 1
    lua_gate.flush()


def test_keys_of_a_gate_run_out_but_not_the_common_one(lua_gate: LuaGate) -> None:
    lua_gate.run(1, START, rate=6000, most=5, ttl_ms=1000)
    assert lua_gate.run(1, START + MINUTE, rate=6000, most=5, ttl_ms=1000).granted == 1
    since, last, calls, _ = (lua_gate.client.pttl(name) for name in lua_gate.names)
    assert since == -1
    assert 3_500_000 < last <= 3_600_000
    assert 3_500_000 < calls <= 3_600_000
    lua_gate.flush()


def test_calls_of_several_targets_take_one_place_each(lua_gate: LuaGate) -> None:
    lua_gate.largest = 20
    lua_gate.run(0, START, rate=600, most=5, ttl_ms=1000)
    grant = lua_gate.run((20, 1, 1), START + MINUTE, rate=600, most=5, ttl_ms=1000)
    assert (grant.granted, len(grant.tokens)) == (1, 1)
    assert grant.wait_ms > 18 * 60_000 / 600
    lua_gate.flush()
