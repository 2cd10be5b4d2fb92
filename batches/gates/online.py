"""The gate of an account's online reserve: for people and other systems, never for batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Self

from .gateway import SyncGate
from .script import GateKeys, Grant

#: seconds that a request waits for the gateway's gate, which busy lanes share
PATIENCE = 2.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of an account and its gateway, as they are now."""

    account_id: int
    online_reserve_per_min: int
    gateway_id: int
    gateway_rate_per_min: int | None
    gateway_max_concurrent: int | None
    #: most targets that any call to the gateway may have
    gateway_largest_call: int = 1


class Gate(StrEnum):
    """Which gate is closed."""

    RESERVE = "reserve"  # the account keeps nothing for online sends
    ONLINE = "online"
    GATEWAY = "gateway"


@dataclass(frozen=True, slots=True)
class Permit:
    """One request may leave now; hand it in with `release` when the request has ended."""

    gateway_id: int
    tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Closed:
    """No request may leave; by which gate, and seconds until asking again makes sense."""

    gate: Gate
    seconds: float = 0.0


class OnlineGate:
    """One permit of the account's reserve and one of its gateway, both or none."""

    def __init__(self, redis_url: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._gate = SyncGate(redis_url)
        self._sleep = sleep

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._gate.__exit__(kind, error, trace)

    def take(self, limits: Limits, *, token_ttl_ms: int) -> Permit | Closed:
        """A permit, or why there is none. Raises GateUnavailableError.

        The batch rate is not touched: a reserve of 0 is closed for good.
        """
        reserve = limits.online_reserve_per_min
        if reserve <= 0:
            return Closed(Gate.RESERVE)
        online = GateKeys.of_account_online(limits.account_id)
        # 1. Ask only, so that a closed reserve costs the gateway no permit.
        peek = self._gate.take(online, 0, rate_per_min=reserve)
        if peek.wait_ms:
            return Closed(Gate.ONLINE, peek.wait_ms / 1000)
        # 2. The gateway's permit, which lanes compete for; 3. the reserve's, last, because a
        #    permit is good for a moment only.
        gateway = self._take_of_gateway(limits, token_ttl_ms)
        if not gateway.granted:
            return Closed(Gate.GATEWAY, max(gateway.wait_ms / 1000, 0.1))
        try:
            mine = self._gate.take(online, 1, rate_per_min=reserve)
        except BaseException:
            self._gate.give_back(GateKeys.of_gateway(limits.gateway_id), gateway)
            raise
        if not mine.granted:
            self._gate.give_back(GateKeys.of_gateway(limits.gateway_id), gateway)
            return Closed(Gate.ONLINE, mine.wait_ms / 1000)
        return Permit(limits.gateway_id, gateway.tokens)

    def release(self, permit: Permit) -> None:
        """The request has ended."""
        self._gate.release(GateKeys.of_gateway(permit.gateway_id), permit.tokens)

    def _take_of_gateway(self, limits: Limits, token_ttl_ms: int) -> Grant:
        end = time.monotonic() + PATIENCE
        while True:
            grant = self._gate.take(
                GateKeys.of_gateway(limits.gateway_id),
                1,
                rate_per_min=limits.gateway_rate_per_min,
                max_concurrent=limits.gateway_max_concurrent,
                token_ttl_ms=token_ttl_ms,
                largest=limits.gateway_largest_call,
            )
            wait = grant.wait_ms / 1000
            if grant.granted or time.monotonic() + wait > end:
                return grant
            self._sleep(max(wait, 0.001))
