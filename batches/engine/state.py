"""What the loops of one turn share."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from batches.store.settle import Settled

from .plan import AccountPlan, GatewayPlan, JobPlan, ReadyHeap, ShardPlan
from .sending import Flight

#: seconds before the lease's end from which nothing is sent any more
LEASE_MARGIN = 0.5
#: a flight longer than this (s) marks its account as slow while the turn closes
SLOW_FLIGHT = 1.0


#: a claim of so many is always allowed; smaller ones cost too much per call
SMALL_GROUP = 64


@dataclass(frozen=True, slots=True)
class TurnOptions:
    """Times in seconds."""

    turn: float = 120.0
    hard_turn: float = 300.0
    #: no answer is waited for after this, whatever its gateway's time-out: RQ gives a worker up
    #: that is silent for 420 s
    longest: float = 380.0
    lease: float = 10.0
    tick: float = 1.0
    idle: float = 3.0
    #: how long calls in flight may take after SIGTERM
    term_drain: float = 6.5
    #: calls per claim, at most
    group: int = 256
    max_flights: int = 2048
    max_backlog: int = 1024


@dataclass(slots=True)
class LaneState:
    """One turn's memory; touched by its event loop only."""

    lane: int
    options: TurnOptions
    should_stop: Callable[[], bool]
    rng: random.Random = field(default_factory=random.Random)
    accounts: dict[int, AccountPlan] = field(default_factory=dict)
    shards: dict[int, ShardPlan] = field(default_factory=dict)
    jobs: dict[int, JobPlan] = field(default_factory=dict)
    gateways: dict[int, GatewayPlan] = field(default_factory=dict)
    #: jobs whose action could not make sense of them, in this turn
    uncompiled: set[int] = field(default_factory=set)
    #: job → monotonic time before which its limits let nothing through
    blocked: dict[int, float] = field(default_factory=dict)
    ready: ReadyHeap = field(default_factory=ReadyHeap)
    hungry: set[int] = field(default_factory=set)
    flights: dict[int, tuple[asyncio.Task[None], Flight]] = field(default_factory=dict)
    answers: list[Settled] = field(default_factory=list)
    #: calls claimed and not yet settled in the database
    open_calls: set[int] = field(default_factory=set)
    #: jobs that may be ready to move on
    advance: set[int] = field(default_factory=set)
    #: stops, and what else the housekeeping has to write
    trips: list[Callable[[], object]] = field(default_factory=list)
    lease_deadline: float = 0.0
    sent: int = 0
    #: nothing is claimed any more
    draining: bool = False
    #: the turn looks for a good moment to end: slow accounts are left for the next one
    closing: bool = False
    #: the lease is gone: nothing is sent any more
    lost: bool = False
    failed: BaseException | None = None
    #: why it sends less than it could, for people: '' or 'redis'
    note: str = ""
    claim_wake: asyncio.Event = field(default_factory=asyncio.Event)
    settle_wake: asyncio.Event = field(default_factory=asyncio.Event)
    fetch_wake: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def group(self) -> int:
        """Calls for one claim: few enough that others are sent while it is under way."""
        return min(self.options.group, max(SMALL_GROUP, len(self.accounts) // 2))

    def may_send(self) -> bool:
        """Whether the lease still covers a request that leaves now."""
        return not self.lost and time.monotonic() < self.lease_deadline - LEASE_MARGIN

    def schedule(self, account: AccountPlan) -> None:
        """Queue an account that may take another call; ask for items if it has none."""
        if account.inflight >= account.max_inflight or account.picked or self.draining:
            return
        if self.accounts.get(account.account_id) is not account or account.moved:
            return
        if account.has_item():
            self.ready.push(account, account.due)
            self.claim_wake.set()

    def reschedule(self, account: AccountPlan) -> None:
        """Its due time was moved forward."""
        if account.queued:
            self.ready.push_sooner(account)
            self.claim_wake.set()

    def want_items(self, shard: ShardPlan) -> None:
        """Ask for the shard's look-ahead to be filled."""
        self.hungry.add(shard.shard_id)
        self.fetch_wake.set()

    def oldest_flight(self) -> float:
        """Age in seconds of the oldest flight; 0 with none."""
        if not self.flights:
            return 0.0
        return time.monotonic() - min(f.claimed_at for _, f in self.flights.values())
