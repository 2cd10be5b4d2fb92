"""One claimed item on its way: build, carry, parse, judge."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from batches.domain.categories import Category
from batches.domain.decisions import Decision, decide
from batches.domain.hiding import hide_in
from batches.domain.outcomes import NotSent, Outcome, Unknown
from batches.gateways.base import CallSpec, HttpRequest
from batches.store.settle import Settled

from .plan import AccountPlan, GatewayPlan, JobPlan, PlannedItem
from .steps import step, step_soon
from .transport import Answer, Transport

#: seconds between a claim and its request that the rate gate allows for
PROMPT = 0.3


@dataclass(slots=True)
class Flight:
    """A call that is ours to make, and all that is needed to make it."""

    call_id: int
    items: tuple[PlannedItem, ...]
    #: which try this is, per item
    attempts: tuple[int, ...]
    job: JobPlan
    account: AccountPlan
    gateway: GatewayPlan
    #: monotonic moment before the claim
    claimed_at: float
    #: its place among the gateway's concurrent calls; '' where they are not counted
    place: str = ""
    #: monotonic moment after which the gateway's permit is no longer good; None without one
    permit_until: float | None = None
    #: of a half-open shard
    probe: bool = False


async def fly(
    flight: Flight, transport: Transport, *, may_send: Callable[[], bool], rng: random.Random
) -> Settled:
    """Make the call once and judge what came of it. Never raises, not even when cancelled."""
    started = left = time.monotonic()
    status: int | None = None

    def door() -> bool:
        """The last look before the first byte: a connection may have taken seconds to come."""
        nonlocal left
        left = time.monotonic()
        return may_send() and (flight.permit_until is None or left <= flight.permit_until)

    outcomes: Sequence[Outcome]
    built = _build(flight)
    if isinstance(built, NotSent):
        outcomes = [built] * len(flight.items)
    elif not may_send():
        lost = NotSent(Category.LOST, "the lane's lease had run out before the request")
        outcomes = [lost] * len(flight.items)
    else:
        call, request = built
        step_soon("send.waiting")
        try:
            answer = await transport.post(request, door=door, timeout=flight.gateway.timeout)
        except asyncio.CancelledError:
            answer = Unknown(Category.ABORTED, "cut off while waiting for the answer")
        step("send.answered")
        if isinstance(answer, Answer):
            status = answer.status
            outcomes = _parse(flight, call, answer)
        else:
            outcomes = [answer] * len(flight.items)
    outcomes = [hide_in(outcome, flight.gateway.config.token) for outcome in outcomes]
    _count_unsent(flight.account, outcomes)
    return Settled(
        call_id=flight.call_id,
        job_id=flight.job.job_id,
        account_id=flight.account.account_id,
        item_ids=tuple([item.item_id for item in flight.items]),
        decisions=tuple(
            [
                _judge(outcome, attempt, flight, rng)
                for outcome, attempt in zip(outcomes, flight.attempts, strict=True)
            ]
        ),
        http_status=status,
        duration_ms=int((time.monotonic() - started) * 1000),
        late=max(0.0, left - flight.claimed_at - PROMPT),
        throttled=flight.account.throttled,
    )


def never_left(flight: Flight, rng: random.Random) -> Settled:
    """What to record of a flight that was cut off before it began."""
    lost = NotSent(Category.LOST, "cut off before the request")
    return Settled(
        call_id=flight.call_id,
        job_id=flight.job.job_id,
        account_id=flight.account.account_id,
        item_ids=tuple(item.item_id for item in flight.items),
        decisions=tuple(_judge(lost, attempt, flight, rng) for attempt in flight.attempts),
    )


def _build(flight: Flight) -> tuple[CallSpec, HttpRequest] | NotSent:
    """The request, or why there is none; nothing has been sent either way."""
    try:
        to_target = flight.job.compiled.to_target
        call = CallSpec(
            request_id=str(flight.call_id),
            guid=flight.account.guid,
            operation=flight.job.compiled.operation,
            targets=tuple([to_target(item.target, item.fields) for item in flight.items]),
        )
        return call, flight.gateway.adapter.build(flight.gateway.config, call)
    except Exception as error:  # noqa: BLE001 - a row that cannot be built must not stop a lane
        return NotSent(Category.RENDER, f"{type(error).__name__}: {error}")


def _parse(flight: Flight, call: CallSpec, answer: Answer) -> Sequence[Outcome]:
    """One outcome per target; an answer we cannot read proves nothing."""
    try:
        outcomes = flight.gateway.adapter.parse(
            flight.gateway.config, call, answer.status, answer.headers, answer.body
        )
        if len(outcomes) == len(flight.items):
            return outcomes
        problem = f"{len(outcomes)} outcomes for {len(flight.items)} targets"
    except Exception as error:  # noqa: BLE001 - adapters never raise; if one does, it is in doubt
        problem = f"{type(error).__name__}: {error}"
    return [Unknown(Category.UNREADABLE, problem)] * len(flight.items)


def _count_unsent(account: AccountPlan, outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        if isinstance(outcome, NotSent) and outcome.category is not Category.LOST:
            account.unsent_streak += 1
            return
    account.unsent_streak = 0


def _judge(outcome: Outcome, attempt: int, flight: Flight, rng: random.Random) -> Decision:
    return decide(
        outcome,
        attempt=attempt,
        max_attempts=flight.job.max_attempts,
        rng=rng,
        unsent_streak=max(1, flight.account.unsent_streak),
        waits_for_confirmation=flight.job.waits_for_confirmation,
    )
