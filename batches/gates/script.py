"""What the gates' scripts take and give, the same for both kinds of client."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

#: µs; what a rate per minute is counted over
MINUTE = 60_000_000
#: µs between a permit and its request that the rate allows for; an older permit is given back
MARGIN = 500_000
#: µs by which a permit may be fetched late without loss; also the length of the largest burst
TOLERANCE = 250_000
#: µs; a step of the schedule is this divided by the rate, so that in any MINUTE + MARGIN at most
#: `rate` targets are permitted: rate · step − TOLERANCE is no shorter (docs/pacing.md)
SPAN = MINUTE + MARGIN + TOLERANCE

#: seconds; whoever waits for a gate holds, so it is better told soon that there is no answer
CONNECT_TIMEOUT = 0.5
ANSWER_TIMEOUT = 0.8

#: The braces keep all keys on one node of a cluster, where a script must find them together.
_PREFIX = "wecom_ops:{gate}"
SINCE = f"{_PREFIX}:since"


@dataclass(frozen=True, slots=True)
class GateKeys:
    """The Redis keys of one gate."""

    last: str
    calls: str
    asked: str

    @classmethod
    def named(cls, name: str) -> GateKeys:
        return cls(f"{name}:last", f"{name}:calls", f"{name}:asked")

    @classmethod
    def of_gateway(cls, gateway_id: int) -> GateKeys:
        return cls.named(f"{_PREFIX}:gateway:{gateway_id}")

    @classmethod
    def of_account_online(cls, account_id: int) -> GateKeys:
        return cls.named(f"{_PREFIX}:online:{account_id}")


@dataclass(frozen=True, slots=True)
class Grant:
    """Permits for the first `granted` calls of those asked for, and how long until the next.

    Each is good for `MARGIN`. `tokens`, one per call, are to be released when the calls have
    ended; there are none where nothing limits the calls at once.
    """

    granted: int
    wait_ms: int = 0
    tokens: tuple[str, ...] = ()
    #: the gate's `last` before these permits and after each of them; empty without a rate
    trail: tuple[str, ...] = ()

    def keep(self, used: int) -> tuple[Grant, Grant]:
        """This grant cut in two: its first `used` permits, and the others, to give back."""
        return (
            replace(self, granted=used, tokens=self.tokens[:used], trail=self.trail[: used + 1]),
            replace(
                self,
                granted=self.granted - used,
                tokens=self.tokens[used:],
                trail=self.trail[used:],
            ),
        )


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script and the name that the server knows it by."""

    text: str
    sha: str

    @classmethod
    def read(cls, name: str) -> Script:
        text = (Path(__file__).parent / name).read_text(encoding="utf-8")
        return cls(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


TAKE = Script.read("take.lua")
GIVE_BACK = Script.read("give_back.lua")


@dataclass(frozen=True, slots=True)
class TakeCall:
    """One run of `take.lua`."""

    keys: tuple[str, str, str, str]
    #: targets of each call
    sizes: tuple[int, ...]
    rate_per_min: int
    max_concurrent: int
    prefix: str
    token_ttl_ms: int
    largest: int
    #: others than this are for tests
    tolerance: int = TOLERANCE

    @property
    def span(self) -> int:
        return MINUTE + MARGIN + self.tolerance

    def args(self, *, fresh: bool, now: int | None = None) -> tuple[int | str, ...]:
        """`fresh`: the server had forgotten the script; `now` (µs) is for tests only."""
        return (
            len(self.sizes),
            ",".join(map(str, self.sizes)) if any(size > 1 for size in self.sizes) else "",
            self.span,
            self.rate_per_min,
            self.tolerance,
            self.max_concurrent,
            self.prefix,
            self.token_ttl_ms,
            self.largest,
            "1" if fresh else "",
            "" if now is None else now,
        )

    def grant(self, answer: Sequence[int | str | bytes]) -> Grant:
        """What the script's answer says."""
        granted, wait_ms = int(answer[0]), int(answer[1])
        tokens: tuple[str, ...] = ()
        if self.max_concurrent:
            tokens = tuple(f"{self.prefix}:{i}" for i in range(1, granted + 1))
        trail: list[str] = []
        if self.rate_per_min:
            before = answer[2].decode() if isinstance(answer[2], bytes) else str(answer[2])
            slot, step, largest = (int(value) for value in answer[3:6])
            trail.append(before)
            for size in self.sizes[:granted]:
                trail.append(f"{slot} {size} {largest}")
                slot += min(size * step, self.span + self.tolerance)
        return Grant(granted, wait_ms, tokens, tuple(trail))


def take_call(
    keys: GateKeys,
    wanted: int | Sequence[int],
    *,
    rate_per_min: int | None,
    max_concurrent: int | None = None,
    token_ttl_ms: int = 0,
    largest: int = 1,
) -> TakeCall:
    """A take of permits for so many calls of one target, or for calls of so many targets each.

    None wanted asks only how long until the next.
    """
    sizes = (1,) * wanted if isinstance(wanted, int) else tuple(wanted)
    return TakeCall(
        keys=(SINCE, keys.last, keys.calls, keys.asked),
        sizes=sizes,
        rate_per_min=rate_per_min or 0,
        max_concurrent=max_concurrent or 0,
        prefix=uuid.uuid4().hex,
        token_ttl_ms=token_ttl_ms,
        largest=max((largest, *sizes)),
    )


def give_back_args(unused: Grant) -> tuple[str, ...]:
    """Arguments of `give_back.lua`; keys are `last` and `calls`."""
    after, before = (unused.trail[-1], unused.trail[0]) if unused.trail else ("", "")
    return (after, before, *unused.tokens)
