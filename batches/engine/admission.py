"""Permits of the gateways' shared limits: asked for before a claim, handed back after the call."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Protocol

from batches.domain.hiding import host_of
from batches.gates.errors import GateUnavailableError
from batches.gates.gateway import GatewayGate
from batches.gates.script import Grant

from .plan import GatewayPlan

log = logging.getLogger(__name__)

#: seconds by which a call's place outlives the longest call, should nobody hand it back
PLACE_MARGIN = 10.0
#: seconds after which a gate that did not answer is asked again
ASK_AGAIN = 1.0
#: seconds for which a permit is good; within the half second that the gates allow for
PERMIT_GOOD = 0.45


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
        #: monotonic time until which Redis, which did not answer, is not asked again
        self._away_until = 0.0

    @property
    def away(self) -> bool:
        """A gate did not answer the last time it was asked."""
        return self._away_until > 0.0

    async def aclose(self) -> None:
        """Hand back what is left and close."""
        await self.hand_back()
        await self._gate.aclose()

    async def admit(self, gateway: GatewayPlan, wanted: Sequence[int]) -> tuple[Permits, float]:
        """Permits for as many of the calls (targets each, in order) as the gates let through.

        The second value is how many seconds the others should wait.
        """
        if gateway.unlimited:
            return Permits(self._gate, gateway, wanted), 0.0
        asked_at = time.monotonic()
        if asked_at < self._away_until:
            return Permits(self._gate, gateway, ()), self._away_until - asked_at
        try:
            grant = await self._gate.take(
                gateway.gateway_id,
                wanted,
                rate_per_min=gateway.rate_limit,
                max_concurrent=gateway.max_concurrent,
                token_ttl_ms=int((gateway.timeout + PLACE_MARGIN) * 1000),
                largest=gateway.largest_call,
            )
        except GateUnavailableError as error:
            if not self.away:
                host, why = host_of(gateway.config.base_url), type(error.__cause__ or error)
                log.warning("calls to %s hold: %s (%s)", host, error, why.__name__)
            self._away_until = time.monotonic() + ASK_AGAIN
            return Permits(self._gate, gateway, ()), ASK_AGAIN
        self._away_until = 0.0
        permits = Permits(self._gate, gateway, wanted[: grant.granted], grant)
        if gateway.rate_limit is not None:
            permits.good_until = asked_at + PERMIT_GOOD
        return permits, grant.wait_ms / 1000

    def ended(self, gateway: GatewayPlan, token: str) -> None:
        """A call has ended; its place is handed back with the next occasion."""
        if token:
            self._ended.setdefault(gateway.gateway_id, []).append(token)

    async def hand_back(self) -> None:
        """Give the places of ended calls to others; later, while Redis is away."""
        while self._ended and time.monotonic() >= self._away_until:
            gateway_id, tokens = self._ended.popitem()
            await self._gate.release(gateway_id, tokens)


class Permits:
    """What was granted for one group of calls to one gateway."""

    def __init__(
        self,
        gate: GatewayGate,
        gateway: GatewayPlan,
        sizes: Sequence[int],
        grant: Grant | None = None,
    ) -> None:
        self._gate = gate
        self._gateway = gateway
        #: targets of each call that was granted
        self._sizes = sizes
        self._grant = grant
        self.calls = len(sizes)
        #: monotonic moment; a request that is not on its way by then does not leave
        self.good_until: float | None = None

    async def use(self, calls: int, sends: int) -> None:
        """Keep permits for `calls` calls with `sends` targets together; give the others back."""
        self.calls = calls
        if self._grant is None:
            return
        # Which of the calls are made is not said, so the first permits that cover them are kept.
        kept = targets = 0
        while kept < len(self._sizes) and (kept < calls or targets < sends):
            targets += self._sizes[kept]
            kept += 1
        self._grant, unused = self._grant.keep(kept)
        await self._gate.give_back(self._gateway.gateway_id, unused)
        await self._gate.release(self._gateway.gateway_id, self._grant.tokens[calls:])

    @property
    def tokens(self) -> tuple[str, ...]:
        """One per call where places are counted; else empty."""
        return self._grant.tokens[: self.calls] if self._grant is not None else ()
