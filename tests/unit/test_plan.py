"""What a lane has in mind: who is due, whose turn it is, and how many fit one call."""

from __future__ import annotations

from collections import Counter, deque
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batches.engine.picking import pick_due, put_back
from batches.engine.plan import (
    AccountPlan,
    GatewayPlan,
    JobPlan,
    PlannedItem,
    ReadyHeap,
    ShardPlan,
)
from batches.engine.state import LaneState, TurnOptions


def account(number: int = 1, **more: Any) -> AccountPlan:
    return AccountPlan(number, f"guid-{number}", 1, more.pop("max_inflight", 1), **more)


def job_plan(number: int = 1, *, priority: int = 0, call_size: int = 1) -> JobPlan:
    compiled: Any = SimpleNamespace(operation="send_text", to_target=lambda target, _fields: target)
    return JobPlan(
        job_id=number,
        priority=priority,
        max_attempts=3,
        waits_for_confirmation=False,
        compiled=compiled,
        call_size=call_size,
        breaker=SimpleNamespace(),  # type: ignore[arg-type]
    )


def give(owner: AccountPlan, job: int, shard: int, items: int) -> ShardPlan:
    plan = ShardPlan(shard, job, owner.account_id)
    plan.buffer.extend(PlannedItem(shard * 1000 + n, n, f"t{n}", []) for n in range(1, items + 1))
    owner.jobs.setdefault(job, deque()).append(plan)
    return plan


# --- the heap ------------------------------------------------------------------------------------


def test_heap_gives_the_account_that_has_been_due_longest():
    heap = ReadyHeap()
    plans = [account(n) for n in range(4)]
    for plan, due in zip(plans, (3.0, 1.0, 2.0, 9.0), strict=True):
        heap.push(plan, due)
    assert heap.next_due() == 1.0
    assert [heap.pop_due(5.0) for _ in range(4)] == [plans[1], plans[2], plans[0], None]
    assert heap.next_due() == 9.0


def test_heap_queues_an_account_once():
    heap, plan = ReadyHeap(), account()
    for _ in range(3):
        heap.push(plan, 1.0)
    assert heap.pop_due(2.0) is plan
    assert heap.pop_due(2.0) is None


def test_heap_account_whose_time_was_moved_back_comes_then():
    heap, plan = ReadyHeap(), account()
    heap.push(plan, 1.0)
    plan.due = 5.0
    assert heap.pop_due(2.0) is None
    assert heap.next_due() == 5.0
    assert heap.pop_due(5.0) is plan


def test_heap_account_whose_time_was_moved_forward_comes_sooner_and_once():
    heap, plan = ReadyHeap(), account()
    heap.push(plan, 50.0)
    plan.due = 1.0
    heap.push_sooner(plan)
    assert heap.next_due() == 1.0
    assert heap.pop_due(2.0) is plan
    assert heap.pop_due(99.0) is None


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["push", "later", "sooner", "pop"])),
        max_size=60,
    )
)
def test_heap_any_sequence_never_loses_nor_doubles_an_account(steps):
    heap = ReadyHeap()
    plans = {n: account(n) for n in range(6)}
    queued: set[int] = set()
    for n, act in steps:
        plan = plans[n]
        if act == "push":
            heap.push(plan, 1.0)
            queued.add(n)
        elif act == "later":
            plan.due += 3.0
        elif act == "sooner" and n in queued:
            plan.due = 0.0
            heap.push_sooner(plan)
        elif act == "pop" and (found := heap.pop_due(2.0)) is not None:
            assert found.due <= 2.0
            queued.remove(found.account_id)
    rest = []
    while (found := heap.pop_due(1e9)) is not None:
        rest.append(found.account_id)
    assert sorted(rest) == sorted(queued)


# --- whose turn ----------------------------------------------------------------------------------


def test_take_highest_priority_first_whatever_waits_below():
    plan = account()
    give(plan, 1, 1, 3)
    give(plan, 2, 2, 3)
    jobs = {1: job_plan(1, priority=0), 2: job_plan(2, priority=5)}
    taken = []
    for _ in range(6):
        found = plan.take(jobs, {}, 0.0)
        assert found is not None
        found[0].buffer.popleft()
        taken.append(found[0].job_id)
    assert taken == [2, 2, 2, 1, 1, 1]


def test_take_jobs_of_one_priority_take_turns_and_so_do_their_shards():
    plan = account()
    give(plan, 1, 1, 9)
    give(plan, 1, 2, 9)
    give(plan, 2, 3, 9)
    jobs = {1: job_plan(1), 2: job_plan(2)}
    shards = []
    for _ in range(8):
        found = plan.take(jobs, {}, 0.0)
        assert found is not None
        shards.append(found[0].shard_id)
    assert Counter(shards) == {3: 4, 1: 2, 2: 2}
    assert all(a != b for a, b in pairwise(shards))


def test_take_job_at_its_limit_leaves_the_turn_to_the_others():
    plan = account()
    give(plan, 1, 1, 3)
    give(plan, 2, 2, 3)
    jobs = {1: job_plan(1, priority=9), 2: job_plan(2)}
    found = plan.take(jobs, {1: 100.0}, 50.0)
    assert found is not None
    assert found[0].job_id == 2
    found = plan.take(jobs, {1: 100.0}, 100.0)
    assert found is not None
    assert found[0].job_id == 1


@pytest.mark.parametrize("why", ["nothing", "empty", "blocked", "unknown job"])
def test_take_without_anything_to_send_gives_none(why):
    plan = account()
    jobs = {1: job_plan(1)}
    if why != "nothing":
        give(plan, 1, 1, 0 if why == "empty" else 2)
    blocked = {1: 9.0} if why == "blocked" else {}
    assert plan.take({} if why == "unknown job" else jobs, blocked, 0.0) is None


# --- picks ---------------------------------------------------------------------------------------


class Adapter:
    """Takes up to four targets a call."""

    def max_targets(self, _config: Any, _operation: Any) -> int:
        return 4

    def fitting(self, _config: Any, _operation: Any, targets: list[Any]) -> int:
        return len(targets)


def lane(*accounts: AccountPlan, jobs: dict[int, JobPlan] | None = None, **options) -> LaneState:
    state = LaneState(lane=1, options=TurnOptions(**options), should_stop=lambda: False)
    gateway = GatewayPlan(1, Adapter(), SimpleNamespace(), 5.0)  # type: ignore[arg-type]
    state.gateways[1] = gateway
    state.jobs.update(jobs or {1: job_plan(1)})
    for plan in accounts:
        state.accounts[plan.account_id] = plan
        state.schedule(plan)
    return state


def with_items(number: int, items: int = 5, **more) -> AccountPlan:
    plan = account(number, **more)
    give(plan, 1, number, items)
    return plan


def test_pick_gives_each_due_account_one_call():
    state = lane(*(with_items(n) for n in range(1, 6)))
    picks = pick_due(state, 64)
    assert [p.account.account_id for p in picks] == [1, 2, 3, 4, 5]
    assert [len(p.items) for p in picks] == [1] * 5


def test_pick_account_whose_claim_is_under_way_is_not_picked_again():
    """A view that comes in between queues every account anew: one of them twice in a group would
    charge its items twice."""
    plan = with_items(1, max_inflight=5)
    state = lane(plan)
    assert len(pick_due(state, 64)) == 1
    state.schedule(plan)
    assert pick_due(state, 64) == []


def test_pick_put_back_returns_the_items_in_order_and_the_account_to_the_queue():
    plan = with_items(1, items=3)
    state = lane(plan)
    picks = pick_due(state, 64)
    put_back(state, picks, wait=0.0)
    assert [i.seq for i in plan.jobs[1][0].buffer] == [1, 2, 3]
    assert not plan.picked
    again = pick_due(state, 64)
    assert [p.items[0].seq for p in again] == [1]


def test_pick_account_at_its_limit_of_calls_or_not_ours_is_left():
    busy = with_items(1)
    gone = with_items(2)
    state = lane(busy, gone)
    busy.inflight = 1
    del state.accounts[2]
    assert pick_due(state, 64) == []


def test_pick_stops_while_too_much_is_in_the_air():
    state = lane(with_items(1), max_flights=1)
    state.flights[1] = (None, None)  # type: ignore[assignment]
    assert pick_due(state, 64) == []


def test_pick_stops_while_too_many_answers_wait_to_be_recorded():
    state = lane(with_items(1), max_backlog=0)
    assert pick_due(state, 64) == []


def test_pick_closing_turn_leaves_slow_accounts_to_the_next():
    slow, quick = with_items(1), with_items(2)
    slow.slow = True
    state = lane(slow, quick)
    state.closing = True
    assert [p.account for p in pick_due(state, 64)] == [quick]


def test_pick_nearly_empty_look_ahead_asks_for_more():
    plan = with_items(1, items=2)
    state = lane(plan)
    pick_due(state, 64)
    assert state.hungry == {1}


def test_pick_calls_of_several_targets_take_what_fits():
    plan = with_items(1, items=10, rate=100)
    state = lane(plan, jobs={1: job_plan(1, call_size=50)})
    (pick,) = pick_due(state, 64)
    assert (pick.size, [i.seq for i in pick.items]) == (4, [1, 2, 3, 4])


def test_pick_call_is_never_larger_than_a_minutes_rate():
    plan = with_items(1, items=10, rate=3)
    state = lane(plan, jobs={1: job_plan(1, call_size=50)})
    (pick,) = pick_due(state, 64)
    assert (pick.size, len(pick.items)) == (3, 3)


def test_pick_jobs_of_different_call_sizes_on_one_account_share_the_smallest():
    plan = account(1, rate=100)
    give(plan, 1, 1, 10)
    give(plan, 2, 2, 10)
    state = lane(plan, jobs={1: job_plan(1, call_size=4), 2: job_plan(2, call_size=2)})
    (pick,) = pick_due(state, 64)
    assert pick.size == 2
