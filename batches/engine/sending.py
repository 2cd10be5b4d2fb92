"""One claimed item on its way: build, carry, parse, judge."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from batches.domain.categories import Category
from batches.domain.decisions import Decision, decide
from batches.domain.outcomes import NotSent, Outcome, Unknown
from batches.gateways.base import CallSpec, HttpRequest
from batches.store.settle import Settled

from .plan import AccountPlan, GatewayPlan, JobPlan, PlannedItem
from .transport import Answer, Transport

#: seconds between a claim's commit and its request that the rate gate allows for
PROMPT = 0.3


@dataclass(frozen=True, slots=True)
class Flight:
    """A call that is ours to make, and all that is needed to make it."""

    call_id: int
    item: PlannedItem
    attempt: int
    job: JobPlan
    account: AccountPlan
    gateway: GatewayPlan
    #: monotonic moment of the claim's commit
    claimed_at: float


async def fly(
    flight: Flight, transport: Transport, *, may_send: Callable[[], bool], rng: random.Random
) -> Settled:
    """Make the call once and judge what came of it. Never raises, not even when cancelled."""
    started = time.monotonic()
    status: int | None = None
    outcome: Outcome
    built = _build(flight)
    if isinstance(built, NotSent):
        outcome = built
    elif not may_send():
        outcome = NotSent(Category.LOST, "the lane's lease had run out before the request")
    else:
        call, request = built
        try:
            answer = await transport.post(request, timeout=flight.gateway.timeout)
        except asyncio.CancelledError:
            answer = Unknown(Category.ABORTED, "cut off while waiting for the answer")
        if isinstance(answer, Answer):
            status = answer.status
            outcome = _parse(flight, call, answer)
        else:
            outcome = answer
    return Settled(
        call_id=flight.call_id,
        job_id=flight.job.job_id,
        account_id=flight.account.account_id,
        item_ids=(flight.item.item_id,),
        decisions=(_judge(outcome, flight, rng),),
        http_status=status,
        duration_ms=int((time.monotonic() - started) * 1000),
        late=max(0.0, started - flight.claimed_at - PROMPT),
        throttled=flight.account.throttled,
    )


def _build(flight: Flight) -> tuple[CallSpec, HttpRequest] | NotSent:
    """The request, or why there is none; nothing has been sent either way."""
    try:
        call = CallSpec(
            request_id=str(flight.call_id),
            guid=flight.account.guid,
            operation=flight.job.compiled.operation,
            targets=(flight.job.compiled.to_target(flight.item.target, flight.item.fields),),
        )
        return call, flight.gateway.adapter.build(flight.gateway.config, call)
    except Exception as error:  # noqa: BLE001 - a row that cannot be built must not stop a lane
        return NotSent(Category.RENDER, f"{type(error).__name__}: {error}")


def _parse(flight: Flight, call: CallSpec, answer: Answer) -> Outcome:
    """One outcome for the call's one target; an answer we cannot read proves nothing."""
    try:
        outcomes = flight.gateway.adapter.parse(
            flight.gateway.config, call, answer.status, answer.headers, answer.body
        )
        return outcomes[0]
    except Exception as error:  # noqa: BLE001 - adapters never raise; if one does, it is in doubt
        return Unknown(Category.UNREADABLE, f"{type(error).__name__}: {error}")


def _judge(outcome: Outcome, flight: Flight, rng: random.Random) -> Decision:
    account = flight.account
    account.unsent_streak = account.unsent_streak + 1 if isinstance(outcome, NotSent) else 0
    return decide(
        outcome,
        attempt=flight.attempt,
        max_attempts=flight.job.max_attempts,
        rng=rng,
        unsent_streak=max(1, account.unsent_streak),
        waits_for_confirmation=flight.job.waits_for_confirmation,
    )
