"""Permits of the gateways' shared limits: asked for before a claim, handed back after the call."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from batches.gates.errors import GateUnavailableError
from batches.gates.gateway import GatewayGate
from batches.gates.script import Grant

from .plan import GatewayPlan

log = logging.getLogger(__name__)

#: seconds by which a call's place outlives the longest call, should nobody hand it back
PLACE_MARGIN = 10.0
#: seconds after which a gate that did not answer is asked again
ASK_AGAIN = 1.0


class Due(Protocol):
    """What asks to be admitted: a call to one gateway with so many targets."""

    @property
    def gateway(self) -> GatewayPlan: ...

    @property
    def targets(self) -> int: ...


class Admission:
    """One lane's dealings with the gates of its gateways.

    Rates count targets, places count calls. A gateway without limits is never asked about, so
    that it works with Redis away; for the others, Redis away means hold.
    """

    def __init__(self, redis_url: str) -> None:
        self._gate = GatewayGate(redis_url)
        self._ended: dict[int, list[str]] = {}
        #: a gate did not answer the last time it was asked
        self.away = False

    async def aclose(self) -> None:
        """Hand back what is left and close."""
        await self.hand_back()
        await self._gate.aclose()

    async def admit(self, gateway: GatewayPlan, wanted: Sequence[int]) -> tuple[Permits, float]:
        """Permits for as many of the calls (targets each, in order) as the gates let through.

        The second value is how many seconds the others should wait.
        """
        if gateway.rate_limit is None and gateway.max_concurrent is None:
            return Permits(self._gate, gateway, len(wanted)), 0.0
        ttl = int((gateway.timeout + PLACE_MARGIN) * 1000)
        try:
            places = await self._gate.take(
                gateway.gateway_id,
                len(wanted),
                rate_per_min=gateway.rate_limit if max(wanted) == 1 else None,
                max_concurrent=gateway.max_concurrent,
                token_ttl_ms=ttl,
            )
            sends = None
            if max(wanted) > 1 and gateway.rate_limit is not None:
                sends = await self._gate.take(
                    gateway.gateway_id,
                    sum(wanted[: places.granted]),
                    rate_per_min=gateway.rate_limit,
                    max_concurrent=None,
                    token_ttl_ms=ttl,
                )
        except GateUnavailableError as error:
            if not self.away:
                log.warning("calls to %s hold: %s", gateway.config.base_url, error)
            self.away = True
            return Permits(self._gate, gateway, 0), ASK_AGAIN
        self.away = False
        permits = Permits(self._gate, gateway, places.granted, places, sends)
        if sends is not None:
            await permits.fit(wanted)
        waits = [grant.wait_ms for grant in (places, sends) if grant is not None]
        return permits, max(waits, default=0) / 1000

    def ended(self, gateway: GatewayPlan, token: str) -> None:
        """A call has ended; its place is handed back with the next occasion."""
        if token:
            self._ended.setdefault(gateway.gateway_id, []).append(token)

    async def hand_back(self) -> None:
        """Give the places of ended calls to others."""
        while self._ended:
            gateway_id, tokens = self._ended.popitem()
            await self._gate.release(gateway_id, tokens)


class Permits:
    """What was granted for one group of calls to one gateway."""

    def __init__(
        self,
        gate: GatewayGate,
        gateway: GatewayPlan,
        calls: int,
        places: Grant | None = None,
        sends: Grant | None = None,
    ) -> None:
        self._gate = gate
        self._gateway = gateway
        self._places = places
        self._sends = sends
        self.calls = calls

    async def fit(self, wanted: Sequence[int]) -> None:
        """Cut the calls to what the granted sends cover, and give the rest back."""
        assert self._sends is not None
        covered = sends = 0
        for targets in wanted[: self.calls]:
            if sends + targets > self._sends.granted:
                break
            sends += targets
            covered += 1
        self._sends, rest = self._sends.keep(sends)
        await self._gate.give_back(self._gateway.gateway_id, rest)
        await self.use(covered, sends)

    async def use(self, calls: int, sends: int) -> None:
        """Keep permits for `calls` calls with `sends` targets together; give the others back."""
        self.calls = calls
        if self._places is not None:
            self._places, rest = self._places.keep(calls)
            await self._gate.give_back(self._gateway.gateway_id, rest)
        if self._sends is not None and sends < self._sends.granted:
            self._sends, rest = self._sends.keep(sends)
            await self._gate.give_back(self._gateway.gateway_id, rest)

    @property
    def tokens(self) -> tuple[str, ...]:
        """One per call where places are counted; else empty."""
        return self._places.tokens if self._places is not None else ()
