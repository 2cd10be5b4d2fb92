"""Moves that a job makes by itself: which, when, and along which arrows."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batches.domain.lifecycle import Tally, next_move
from batches.domain.states import JOB_ARROWS, JobStatus, PauseReason

J = JobStatus
BUDGET = {"budget_limit": 10, "budget_used": 10}
STAGE = {"stage_limit": 10, "budget_used": 10}


def moved(status, pending=0, submitted=0, inflight=0, **more):
    return next_move(
        Tally(status=status, pending=pending, submitted=submitted, inflight=inflight, **more)
    )


TABLE = [
    (J.RUNNING, {"pending": 0}, (J.COMPLETED, "")),
    (J.RUNNING, {"pending": 0, "submitted": 1}, (J.VERIFYING, "")),
    (J.RUNNING, {"pending": 1}, None),
    (J.RUNNING, {"pending": 1, "inflight": 1}, None),
    (J.RUNNING, {"pending": 1, **BUDGET}, (J.PAUSED, PauseReason.BUDGET)),
    (J.RUNNING, {"pending": 1, **STAGE}, (J.PAUSED, PauseReason.STAGE)),
    (J.RUNNING, {"pending": 1, **BUDGET, "stage_limit": 10}, (J.PAUSED, PauseReason.BUDGET)),
    # an answer still to come may return its send
    (J.RUNNING, {"pending": 2, "inflight": 1, **BUDGET}, None),
    (J.RUNNING, {"pending": 2, "inflight": 1, **STAGE}, None),
    # nothing left to send: the limits do not matter any more
    (J.RUNNING, {"pending": 0, **BUDGET}, (J.COMPLETED, "")),
    (J.RUNNING, {"pending": 0, "submitted": 2, **STAGE}, (J.VERIFYING, "")),
    (J.RUNNING, {"pending": 1, "budget_limit": 10, "budget_used": 9}, None),
    (J.RUNNING, {"pending": 1, "budget_limit": 0, "budget_used": 0}, (J.PAUSED, "budget")),
    (J.PAUSING, {"pending": 5, "inflight": 1, "pause_reason": "operator"}, None),
    (J.PAUSING, {"pending": 5, "pause_reason": "operator"}, (J.PAUSED, "operator")),
    (J.PAUSING, {"pending": 5, "pause_reason": "breaker", **BUDGET}, (J.PAUSED, "breaker")),
    (J.PAUSING, {"pending": 0, "pause_reason": "operator"}, (J.COMPLETED, "")),
    (J.PAUSING, {"pending": 0, "submitted": 1, "pause_reason": "operator"}, (J.VERIFYING, "")),
    (J.VERIFYING, {"pending": 0, "submitted": 3}, None),
    (J.VERIFYING, {"pending": 0}, (J.COMPLETED, "")),
    (J.VERIFYING, {"pending": 1, "submitted": 3}, (J.RUNNING, "")),
    (J.VERIFYING, {"pending": 1}, (J.RUNNING, "")),
    (J.CANCELLING, {"pending": 1, "inflight": 1}, None),
    (J.CANCELLING, {"pending": 1}, None),
    (J.CANCELLING, {"pending": 0, "submitted": 4}, (J.CANCELLED, "")),
    (J.CANCELLING, {"pending": 0}, (J.CANCELLED, "")),
    (J.TERMINATING, {"pending": 9, "inflight": 1}, None),
    (J.TERMINATING, {"pending": 9, "submitted": 1}, (J.TERMINATED, "")),
    (J.TERMINATING, {"pending": 0}, (J.TERMINATED, "")),
]


@pytest.mark.parametrize(("status", "tally", "wanted"), TABLE)
def test_next_move_each_tally_gives_its_row(status, tally, wanted):
    assert moved(status, **tally) == wanted


@pytest.mark.parametrize(
    "status",
    [J.PREPARING, J.AWAITING, J.PAUSED, J.COMPLETED, J.CANCELLED, J.TERMINATED, J.REJECTED],
)
def test_next_move_job_at_rest_stays_whatever_its_counts(status):
    for pending, submitted, inflight in itertools.product((0, 1), repeat=3):
        for limits in ({}, BUDGET, STAGE):
            assert moved(status, pending, submitted, inflight, **limits) is None


counts = st.integers(0, 3)
limits = st.one_of(st.none(), st.integers(0, 3))
tallies = st.builds(
    Tally,
    status=st.sampled_from(JobStatus),
    pending=counts,
    submitted=counts,
    inflight=counts,
    budget_limit=limits,
    budget_used=counts,
    stage_limit=limits,
    pause_reason=st.sampled_from(["", "operator", "breaker"]),
).filter(lambda t: t.inflight <= t.pending)


@given(tallies)
def test_next_move_follows_an_arrow_of_the_table(tally):
    move = next_move(tally)
    if move is not None:
        assert move[0] in JOB_ARROWS[tally.status]
        assert not move[1] or move[0] is J.PAUSED


@given(tallies)
def test_next_move_never_ends_a_job_with_something_in_flight(tally):
    """Stops at the item boundary: what was claimed finishes and is recorded first."""
    move = next_move(tally)
    if move is not None and tally.inflight:
        assert move == (J.RUNNING, "")
        assert tally.status is J.VERIFYING


@given(tallies)
def test_next_move_repeated_comes_to_rest(tally):
    seen = 0
    while (move := next_move(tally)) is not None:
        tally = Tally(
            status=move[0],
            pause_reason=move[1],
            **{
                name: getattr(tally, name)
                for name in (
                    "pending",
                    "submitted",
                    "inflight",
                    "budget_limit",
                    "budget_used",
                    "stage_limit",
                )
            },
        )
        seen += 1
        assert seen < 4, "moves in a circle"
