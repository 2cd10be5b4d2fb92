"""Who is due, and with what: picks for the claim. No IO."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from .plan import REFILL_BELOW, AccountPlan, GatewayPlan, JobPlan, PlannedItem, ShardPlan
from .state import LaneState


@dataclass(slots=True)
class Pick:
    """One call that is due: whose, of which shard, with which items of a full call's `size`."""

    account: AccountPlan
    shard: ShardPlan
    #: kept here: the lane may forget a job while its claim is under way
    job: JobPlan
    gateway: GatewayPlan
    size: int
    items: list[PlannedItem]

    @property
    def targets(self) -> int:
        """How many items it would send."""
        return len(self.items)

    def put_back(self, items: Sequence[PlannedItem]) -> None:
        """Return items to the head of the look-ahead."""
        self.shard.buffer.extendleft(reversed(items))


def pick_due(state: LaneState, most: int) -> list[Pick]:
    """Due accounts, one call each."""
    if (
        len(state.flights) >= state.options.max_flights
        or len(state.answers) >= state.options.max_backlog
    ):
        return []
    picks: list[Pick] = []
    now = time.monotonic()
    while len(picks) < most:
        account = state.ready.pop_due(now)
        if account is None:
            break
        if state.accounts.get(account.account_id) is not account or account.moved:
            continue
        if state.closing and account.slow:
            continue
        if account.inflight >= account.max_inflight:
            continue
        taken = account.take(state.jobs, state.blocked, now)
        if taken is None:
            _retry_blocked(state, account, now)
            continue
        shard, job = taken
        gateway = state.gateways[account.gateway_id]
        alone = job.call_size == 1 or shard.probe
        size = 1 if alone else account.call_size(job, state.jobs, gateway)
        items = _together(shard, job, gateway, size)
        left = len(shard.buffer)
        if left < max(REFILL_BELOW, size) and not (shard.ended and left):
            state.want_items(shard)
        account.picked = True
        picks.append(Pick(account, shard, job, gateway, size, items))
    return picks


def _together(shard: ShardPlan, job: JobPlan, gateway: GatewayPlan, size: int) -> list[PlannedItem]:
    """The next items that can share one call; just the next one where calls carry one target."""
    if size == 1:
        return [shard.buffer.popleft()]
    taken = [shard.buffer.popleft() for _ in range(min(size, len(shard.buffer)))]
    # what was put back may have been read again meanwhile; a call names each target once
    items = list({item.item_id: item for item in taken}.values())
    if len(items) > 1:
        to_target, operation = job.compiled.to_target, job.compiled.operation
        fit = gateway.adapter.fitting(
            gateway.config, operation, [to_target(item.target, item.fields) for item in items]
        )
        shard.buffer.extendleft(reversed(items[fit:]))
        del items[fit:]
    return items


def _retry_blocked(state: LaneState, account: AccountPlan, now: float) -> None:
    """An account whose jobs are at their limits comes back when the first of them is not."""
    times = [t for job in account.jobs if (t := state.blocked.get(job, 0.0)) > now]
    if times and account.has_item():
        account.due = max(account.due, min(times))
        state.ready.push(account, account.due)


def put_back(state: LaneState, picks: Sequence[Pick], wait: float = 0.05) -> None:
    """Return picks that come to nothing now; their accounts are due again after `wait` s."""
    for pick in reversed(picks):
        pick.put_back(pick.items)
        pick.account.picked = False
        pick.account.due = max(pick.account.due, time.monotonic() + wait)
        state.schedule(pick.account)
