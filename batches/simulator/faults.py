"""Faults on request: which call they hit, how often, and what a malformed one is told."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

#: Each kind, and what it does.
KINDS: Mapping[str, str] = {
    "refuse": "answers `code` in an HTTP 200; no effect",
    "http_429": "answers 429 with Retry-After; no effect",
    "credential_expired": "answers a login-state code until deleted; no effect",
    "reset_before_effect": "resets the connection; no effect",
    "http_5xx_after_effect": "takes effect, answers HTTP `status` (500)",
    "hang": "takes effect (unless `effect` is false), does not answer for `seconds` (3600)",
    "reset_after_effect": "takes effect, resets the connection",
    "slow_drip": "takes effect, drips the answer over `seconds` (30)",
    "garbage_body": "takes effect, answers 200 with something else",
    "truncated_body": "takes effect, closes after half of the answer",
    "huge_body": "takes effect, answers with `bytes` (64 MiB) of JSON",
    "lost_callback": "takes effect, never calls back",
    "late_callback": "takes effect, calls back after `seconds` (30)",
    "latency": "answers after a further `seconds` (1)",
    "missing_result": "takes effect; the answer to several targets leaves the target out",
}
#: These go with an otherwise normal answer, and with each other.
_ACCOMPANYING = frozenset({"lost_callback", "late_callback", "latency", "missing_result"})
#: In a call of several these hit the scope's target alone; the other kinds hit the whole call.
_BY_TARGET = frozenset({"refuse", "lost_callback", "late_callback", "missing_result"})
_SECONDS: Mapping[str, float] = {"hang": 3600, "slow_drip": 30, "late_callback": 30, "latency": 1}
_CODES: Mapping[str, int] = {"refuse": 40003, "credential_expired": 11024}
_SCOPE_KEYS = ("guid", "target", "operation")


class FaultError(ValueError):
    """The fault cannot be installed; says what is wrong."""


@dataclass(slots=True)
class Fault:
    """One installed fault."""

    id: int
    kind: str
    scope: Mapping[str, str]
    code: int
    status: int
    retry_after: float | None
    probability: float
    #: how many times it may still fire; None without end
    count: int | None
    seconds: float
    bytes: int
    effect: bool
    fired: int = 0

    def hits(self, guid: str, operation: str, targets: Sequence[str]) -> bool:
        scope = self.scope
        return (
            self.count != 0
            and scope.get("guid", guid) == guid
            and scope.get("operation", operation) == operation
            and ("target" not in scope or scope["target"] in ("*", *targets))
        )

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "scope": self.scope or "all"}


@dataclass(slots=True)
class TargetDraw:
    """What happens to one target of several."""

    #: refuses it; 0 for none
    code: int = 0
    #: None: no callback
    callback_delay: float | None = 0.0
    is_mentioned: bool = True


@dataclass(slots=True)
class Draw:
    """What happens to one call."""

    main: Fault | None = None
    extra_seconds: float = 0.0
    #: None: no callback
    callback_delay: float | None = 0.0
    targets: dict[str, TargetDraw] = field(default_factory=dict)

    def of(self, target: str) -> TargetDraw:
        """What happens to one target in particular."""
        return self.targets.get(target, _NOTHING_MORE)

    def delay(self, target: str) -> float | None:
        """Seconds until the target's callback; None: it is lost."""
        own = self.of(target).callback_delay
        return None if own is None or self.callback_delay is None else self.callback_delay + own


_NOTHING_MORE = TargetDraw()
NOTHING = Draw()


class FaultBook:
    """The installed faults, in order; the first that fires decides, companions add up."""

    def __init__(self, rng: random.Random) -> None:
        self.faults: list[Fault] = []
        self._rng = rng
        self._last_id = 0

    def install(self, body: object) -> Fault:
        """Check and add a fault. Raises FaultError."""
        fault = parse_fault(body, self._last_id + 1)
        self._last_id = fault.id
        self.faults.append(fault)
        return fault

    def remove(self, fault_id: int | None = None) -> int:
        """Remove one fault, or all; gives how many."""
        kept = [] if fault_id is None else [f for f in self.faults if f.id != fault_id]
        removed = len(self.faults) - len(kept)
        self.faults = kept
        return removed

    def draw(self, guid: str, operation: str, targets: Sequence[str]) -> Draw:
        """Decide what happens to a call, using up the counts of what fires."""
        if not self.faults:
            return NOTHING
        draw = Draw()
        for fault in self.faults:
            if fault.kind in _BY_TARGET and len(targets) > 1 and "target" in fault.scope:
                self._draw_by_target(draw, fault, guid, operation, targets)
                continue
            accompanying = fault.kind in _ACCOMPANYING
            if (draw.main and not accompanying) or not fault.hits(guid, operation, targets):
                continue
            if not self._fires(fault):
                continue
            if fault.kind == "latency":
                draw.extra_seconds += fault.seconds
            elif fault.kind == "lost_callback":
                draw.callback_delay = None
            elif fault.kind == "late_callback":
                if draw.callback_delay is not None:
                    draw.callback_delay += fault.seconds
            elif fault.kind == "missing_result":
                for target in targets:
                    draw.targets.setdefault(target, TargetDraw()).is_mentioned = False
            else:
                draw.main = fault
        return draw

    def _draw_by_target(
        self, draw: Draw, fault: Fault, guid: str, operation: str, targets: Sequence[str]
    ) -> None:
        """Each target by itself, in its probability and in its count."""
        for target in dict.fromkeys(targets):
            one = draw.of(target)
            decided = fault.kind == "refuse" and (draw.main is not None or one.code)
            if decided or not fault.hits(guid, operation, (target,)) or not self._fires(fault):
                continue
            one = draw.targets.setdefault(target, TargetDraw())
            if fault.kind == "refuse":
                one.code = fault.code
            elif fault.kind == "missing_result":
                one.is_mentioned = False
            elif fault.kind == "lost_callback":
                one.callback_delay = None
            elif one.callback_delay is not None:
                one.callback_delay += fault.seconds

    def _fires(self, fault: Fault) -> bool:
        if fault.probability < 1 and self._rng.random() >= fault.probability:
            return False
        fault.fired += 1
        if fault.count is not None:
            fault.count -= 1
        return True

    def expired(self, guid: str) -> bool:
        """Whether the account counts as logged out."""
        return any(
            fault.kind == "credential_expired" and fault.hits(guid, "check_login", ())
            for fault in self.faults
        )


def parse_fault(body: object, fault_id: int) -> Fault:
    """A fault from its JSON form. Raises FaultError with what is wrong."""
    if not isinstance(body, dict):
        raise FaultError("a fault is a JSON object")
    known = {"scope", "kind", "code", "status", "retry_after", "probability", "count", "seconds",
             "bytes", "effect"}  # fmt: skip
    if unknown := sorted(set(body) - known):
        raise FaultError(f"unknown keys {unknown}; known: {sorted(known)}")
    kind = body.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise FaultError(f"unknown kind {kind!r}; known: {list(KINDS)}")
    probability = _number(body, "probability", 1.0, least=0.0)
    if probability > 1:
        raise FaultError("probability is a number from 0 to 1")
    count = body.get("count")
    if count is not None and (not _is_int(count) or count < 1):
        raise FaultError("count is a whole number from 1, or null for without end")
    status = _int(body, "status", 500)
    if not 500 <= status <= 599:
        raise FaultError("status is a whole number from 500 to 599")
    effect = body.get("effect", True)
    if not isinstance(effect, bool):
        raise FaultError("effect is true or false")
    retry_after = body.get("retry_after")
    return Fault(
        id=fault_id,
        kind=kind,
        scope=_scope(body.get("scope", "all")),
        code=_int(body, "code", _CODES.get(kind, 0)),
        status=status,
        retry_after=None if retry_after is None else _number(body, "retry_after", 0.0, least=0.0),
        probability=probability,
        count=count,
        seconds=_number(body, "seconds", _SECONDS.get(kind, 0.0), least=0.0),
        bytes=_int(body, "bytes", 64 << 20),
        effect=effect,
    )


def _scope(scope: object) -> dict[str, str]:
    if scope == "all":
        return {}
    if (
        not isinstance(scope, dict)
        or not scope
        or any(key not in _SCOPE_KEYS or not isinstance(text, str) for key, text in scope.items())
    ):
        raise FaultError(f'scope is "all" or an object of strings with keys of {_SCOPE_KEYS}')
    return scope


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _int(body: Mapping[str, object], name: str, default: int) -> int:
    value = body.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise FaultError(f"{name} is a whole number")
    return value


def _number(body: Mapping[str, object], name: str, default: float, *, least: float) -> float:
    value = body.get(name, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= least:
        raise FaultError(f"{name} is a number of at least {least:g}")
    return value
