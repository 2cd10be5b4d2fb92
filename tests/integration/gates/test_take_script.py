"""take.lua and give_back.lua on a real server: the reference's arithmetic, and its law."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batches.gates.script import (
    GIVE_BACK,
    MINUTE,
    TAKE,
    GateKeys,
    Grant,
    give_back_args,
    take_call,
)
from tests.unit.gates.reference import START, Answer, ReferenceGate, Step, overfull, play, schedules


@dataclass
class LuaGate:
    """The scripts, told what time it is."""

    client: redis.Redis
    fresh: bool = True
    prefix: str = field(default_factory=lambda: f"test-gate:{uuid.uuid4().hex}")

    @property
    def names(self) -> tuple[str, str, str]:
        return f"{self.prefix}:since", f"{self.prefix}:last", f"{self.prefix}:calls"

    def run(self, n: int, now: int, *, rate: int | None, most: int | None, ttl_ms: int) -> Grant:
        call = take_call(
            GateKeys(*self.names[1:]),
            n,
            rate_per_min=rate,
            max_concurrent=most,
            token_ttl_ms=ttl_ms,
        )
        args = call.args(fresh=self.fresh, now=now)
        self.fresh = False
        return call.grant(self.client.eval(TAKE.text, 3, *self.names, *args))

    def take(self, n: int, rate: int, now: int) -> Answer:
        grant = self.run(n, now, rate=rate, most=None, ttl_ms=0)
        return Answer(grant.granted, grant.wait_ms, int(grant.slot), int(grant.step))

    def give_back(self, answer: Answer, unused: int) -> None:
        grant = Grant(unused, slot=str(answer.slot), step=str(answer.step))
        self.client.eval(GIVE_BACK.text, 2, *self.names[1:], *give_back_args(grant))

    def flush(self) -> None:
        self.client.delete(*self.names)

    def forget_scripts(self) -> None:
        self.fresh = True


@pytest.fixture
def lua_gate(gate_redis: redis.Redis) -> LuaGate:
    return LuaGate(gate_redis)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rate=st.integers(1, 8), schedule=schedules)
def test_any_schedule_answers_as_the_reference_and_keeps_the_rate(
    gate_redis: redis.Redis, rate: int, schedule: list[Step]
) -> None:
    gate = LuaGate(gate_redis)
    try:
        played = play(gate, rate, schedule)
    finally:
        gate.flush()
    assert played == play(ReferenceGate(), rate, schedule)
    assert overfull(played.permits) == []


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
    lua_gate.client.eval(GIVE_BACK.text, 2, *lua_gate.names[1:], *give_back_args(unused))
    assert take(lua_gate, 3, 1, most=3).granted == 2
    lua_gate.flush()


def test_clock_set_back_begins_anew(lua_gate: LuaGate) -> None:
    lua_gate.take(1, 60, START)
    assert lua_gate.take(1, 60, START + MINUTE).granted == 1
    back = lua_gate.take(1, 60, START - MINUTE)
    assert back.granted == 0
    assert lua_gate.take(1, 60, START - MINUTE + back.wait_ms * 1000).granted == 1
    lua_gate.flush()


def test_keys_of_a_gate_run_out_but_not_the_common_one(lua_gate: LuaGate) -> None:
    lua_gate.run(1, START, rate=6000, most=5, ttl_ms=1000)
    assert lua_gate.run(1, START + MINUTE, rate=6000, most=5, ttl_ms=1000).granted == 1
    since, last, calls = (lua_gate.client.pttl(name) for name in lua_gate.names)
    assert since == -1
    assert 3_500_000 < last <= 3_600_000
    assert 3_500_000 < calls <= 3_600_000
    lua_gate.flush()
