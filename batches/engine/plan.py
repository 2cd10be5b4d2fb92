"""What a lane has in mind: its accounts, their shards, and who is due when. No IO."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from batches.actions.base import Compiled
from batches.domain.breaker import BreakerWindow
from batches.gateways.base import Gateway, GatewayConfig, Operation

#: items looked ahead per shard: enough that a shard at full speed never waits for a fetch
LOOK_AHEAD = 64
REFILL_BELOW = 24


# Not frozen, as nothing that is made once per item: it would take three times as long.
@dataclass(slots=True)
class PlannedItem:
    """An item that was pending when it was read."""

    item_id: int
    seq: int
    target: str
    fields: list[str]


@dataclass(slots=True)
class ShardPlan:
    """Look-ahead of one shard."""

    shard_id: int
    job_id: int
    account_id: int
    buffer: deque[PlannedItem] = field(default_factory=deque)
    #: the look-ahead has read up to this seq
    read_to: int = 0
    #: monotonic time before which reading again finds nothing new
    read_after: float = 0.0
    #: nothing lies beyond what was read; worth another look once the look-ahead is used up
    ended: bool = False
    #: half-open: calls of one item, one at a time for the account
    probe: bool = False


@dataclass(slots=True)
class GatewayPlan:
    """A gateway, ready to build and parse."""

    gateway_id: int
    adapter: Gateway
    config: GatewayConfig
    timeout: float
    #: shared by all lanes; None = no limit
    rate_limit: int | None = None
    max_concurrent: int | None = None

    def max_targets(self, compiled: Compiled) -> int:
        """Targets that one call of this job may carry here."""
        most = self.adapter.max_targets(self.config, compiled.operation)
        return most if self.rate_limit is None else min(most, self.rate_limit)

    @property
    def unlimited(self) -> bool:
        """Whether there is nothing to ask of a shared gate."""
        return self.rate_limit is None and self.max_concurrent is None

    @property
    def largest_call(self) -> int:
        """Targets that any call may carry here."""
        return max(self.adapter.max_targets(self.config, operation) for operation in Operation)


@dataclass(slots=True)
class AccountPlan:
    """One account the lane owns."""

    account_id: int
    guid: str
    gateway_id: int
    max_inflight: int
    #: batch sends per minute, before throttling
    rate: int = 1
    throttled: bool = False
    #: monotonic time of its next send
    due: float = 0.0
    #: monotonic time before which it sends nothing, whatever the database allows
    stopped_until: float = 0.0
    #: it has another gateway or guid by now; a new plan takes its place
    moved: bool = False
    inflight: int = 0
    #: those of half-open shards
    probing: int = 0
    #: a claim for it is under way; until that ends it is neither picked again nor let go
    picked: bool = False
    unsent_streak: int = 0
    #: its last flight took long
    slow: bool = False
    #: in the ready heap, under this ticket
    queued: bool = False
    ticket: int = 0
    #: shards by job, each job's in turn
    jobs: dict[int, deque[ShardPlan]] = field(default_factory=dict)
    turn: int = 0
    served: dict[int, int] = field(default_factory=dict)

    def take(
        self, jobs: Mapping[int, JobPlan], blocked: Mapping[int, float], now: float
    ) -> tuple[ShardPlan, JobPlan] | None:
        """The shard to serve: highest priority first, jobs of one priority in turn, then shards.

        `blocked` holds jobs that may not send before a monotonic time.
        """
        chosen: tuple[int, int, int] | None = None
        for job_id, ring in self.jobs.items():
            plan = jobs.get(job_id)
            if plan is None or blocked.get(job_id, 0.0) > now or not self._any_item(ring):
                continue
            # among equals, the one served longest ago comes first
            rank = (-plan.priority, self.served.get(job_id, 0), job_id)
            if chosen is None or rank < chosen:
                chosen = rank
        if chosen is None:
            return None
        job = chosen[2]
        self.turn += 1
        self.served[job] = self.turn
        ring = self.jobs[job]
        while not ring[0].buffer or (ring[0].probe and self.probing):
            ring.rotate(-1)
        shard = ring[0]
        ring.rotate(-1)
        return shard, jobs[job]

    def call_size(self, job: JobPlan, jobs: Mapping[int, JobPlan], gateway: GatewayPlan) -> int:
        """Targets of a full call: one size for all jobs of the account that use more than one.

        A change of size costs the gate up to a minute, so jobs of different sizes side by side
        take the smallest.
        """

        def size(plan: JobPlan) -> int:
            return max(1, min(plan.call_size, gateway.max_targets(plan.compiled), self.rate))

        if size(job) == 1:
            return 1
        return min(s for plan in map(jobs.get, self.jobs) if plan and (s := size(plan)) > 1)

    def has_item(self) -> bool:
        """Whether any shard may send something of its look-ahead."""
        # a loop, for this is asked several times per item
        for ring in self.jobs.values():  # noqa: SIM110
            if self._any_item(ring):
                return True
        return False

    def _any_item(self, ring: deque[ShardPlan]) -> bool:
        for shard in ring:  # noqa: SIM110 - a generator for `any` costs more than its loop
            if shard.buffer and not (shard.probe and self.probing):
                return True
        return False


@dataclass(slots=True)
class JobPlan:
    """What sending needs to know of a job."""

    job_id: int
    priority: int
    max_attempts: int
    waits_for_confirmation: bool
    compiled: Compiled
    #: targets per call, before the gateway's and the account's own limits
    call_size: int
    breaker: BreakerWindow
    #: the resume since which it counts
    breaker_from: datetime | None = None


class ReadyHeap:
    """Accounts by due time; an entry counts only while its ticket is the account's latest."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, AccountPlan]] = []
        self._tickets = itertools.count(1)

    def push(self, account: AccountPlan, due: float) -> None:
        """Queue an account once; a second push while queued changes nothing."""
        if account.queued:
            return
        account.due = max(account.due, due)
        self._enter(account)

    def push_sooner(self, account: AccountPlan) -> None:
        """Queue anew an account whose due time was moved forward."""
        self._enter(account)

    def _enter(self, account: AccountPlan) -> None:
        account.queued = True
        account.ticket = next(self._tickets)
        heapq.heappush(self._heap, (account.due, account.ticket, account))

    def pop_due(self, now: float) -> AccountPlan | None:
        """The account that has been due longest, or None."""
        while self._heap and self._heap[0][0] <= now:
            _, ticket, account = heapq.heappop(self._heap)
            if ticket != account.ticket:
                continue
            account.queued = False
            if account.due > now:  # its due time was moved back while it was queued
                self._enter(account)
                continue
            return account
        return None

    def next_due(self) -> float | None:
        """When the next account is due (monotonic), or None."""
        while self._heap and self._heap[0][1] != self._heap[0][2].ticket:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def __len__(self) -> int:
        return len(self._heap)
