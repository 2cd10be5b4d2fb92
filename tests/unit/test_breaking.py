"""What answers stop beyond their own item."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from batches.domain.decisions import Decision, Fate
from batches.engine.breaking import watch
from batches.engine.plan import AccountPlan
from batches.engine.state import LaneState, TurnOptions
from batches.store.settle import Settled


def test_lost_login_of_a_call_with_many_targets_stops_the_account_once() -> None:
    state = LaneState(lane=1, options=TurnOptions(), should_stop=lambda: False)
    lost = Decision(Fate.FAILED, "refused", category="credential", code="40014")
    flight: Any = SimpleNamespace(
        account=AccountPlan(7, "guid", 1, 3),
        job=SimpleNamespace(job_id=1, breaker=SimpleNamespace(add=lambda **_: False)),
    )
    for call in (1, 2):
        answers = Settled(call, 1, 7, tuple(range(50)), (lost,) * 50)
        watch(state, flight, answers)
        assert len(state.trips) == 1, "one stop, however many calls were under way"
    assert flight.account.due == flight.account.stopped_until > 0
