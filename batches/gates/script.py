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
#: µs; a step of the schedule is this divided by the rate. In any MINUTE + MARGIN at most `rate`
#: permits are granted, because rate · step − TOLERANCE is no shorter (docs/pacing.md).
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

    @classmethod
    def of_gateway(cls, gateway_id: int) -> GateKeys:
        return cls(f"{_PREFIX}:gateway:{gateway_id}:last", f"{_PREFIX}:gateway:{gateway_id}:calls")

    @classmethod
    def of_account_online(cls, account_id: int) -> GateKeys:
        return cls(f"{_PREFIX}:online:{account_id}:last", f"{_PREFIX}:online:{account_id}:calls")


@dataclass(frozen=True, slots=True)
class Grant:
    """Permits that were granted, and how long until the next.

    Each is good for `MARGIN`. `tokens` are to be released when their calls have ended; there are
    none where nothing limits the calls at once.
    """

    granted: int
    wait_ms: int = 0
    tokens: tuple[str, ...] = ()
    slot: str = ""
    step: str = ""

    def keep(self, used: int) -> tuple[Grant, Grant]:
        """This grant cut in two: the permits that are used, and those to give back."""
        return (
            replace(self, granted=used, tokens=self.tokens[:used]),
            replace(self, granted=self.granted - used, tokens=self.tokens[used:]),
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

    keys: tuple[str, str, str]
    n: int
    rate_per_min: int
    max_concurrent: int
    prefix: str
    token_ttl_ms: int

    def args(self, *, fresh: bool, now: int | None = None) -> tuple[int | str, ...]:
        """`fresh`: the server had forgotten the script; `now` (µs) is for tests only."""
        return (
            self.n,
            SPAN,
            self.rate_per_min,
            TOLERANCE,
            self.max_concurrent,
            self.prefix,
            self.token_ttl_ms,
            "1" if fresh else "",
            "" if now is None else now,
        )

    def grant(self, answer: Sequence[int | str | bytes]) -> Grant:
        """What the script's answer says."""
        granted, wait_ms = int(answer[0]), int(answer[1])
        tokens: tuple[str, ...] = ()
        if self.max_concurrent:
            tokens = tuple(f"{self.prefix}:{i}" for i in range(1, granted + 1))
        slot, step = (v.decode() if isinstance(v, bytes) else str(v) for v in answer[2:4])
        return Grant(granted, wait_ms, tokens, slot, step)


def take_call(
    keys: GateKeys,
    n: int,
    *,
    rate_per_min: int | None,
    max_concurrent: int | None = None,
    token_ttl_ms: int = 0,
) -> TakeCall:
    """A take of up to `n` permits; `n` = 0 asks only how long until the next."""
    return TakeCall(
        keys=(SINCE, keys.last, keys.calls),
        n=n,
        rate_per_min=rate_per_min or 0,
        max_concurrent=max_concurrent or 0,
        prefix=uuid.uuid4().hex,
        token_ttl_ms=token_ttl_ms,
    )


def give_back_args(grant: Grant) -> tuple[int | str, ...]:
    """Arguments of `give_back.lua`; keys are `last` and `calls`."""
    return (grant.slot, grant.step, grant.granted, *grant.tokens)
