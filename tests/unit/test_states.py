"""Every arrow of the state tables, and that there is no other."""

from __future__ import annotations

from itertools import product

import pytest

from batches.domain.lifecycle import Tally, next_move
from batches.domain.states import (
    HOLD_LABELS,
    ITEM_ARROWS,
    ITEM_LABELS,
    ITEM_SETTLED,
    JOB_ARROWS,
    JOB_AT_REST,
    JOB_FINAL,
    JOB_LABELS,
    PAUSE_LABELS,
    SHARD_ARROWS,
    SHARD_LABELS,
    SHARD_RUNNABLE,
    HoldReason,
    ItemState,
    JobStatus,
    PauseReason,
    ShardStatus,
    item_sources,
    job_sources,
    shard_sources,
)
from batches.domain.verbs import VERBS, Verb, verbs_for

# Written out once more by hand, so that a changed arrow is a decision and no slip.
JOB = """
preparing    awaiting rejected cancelled
awaiting     preparing running cancelling
running      pausing paused verifying completed cancelling terminating
pausing      paused running verifying completed cancelling terminating
paused       running cancelling terminating
verifying    running completed cancelling
completed    running
cancelling   cancelled
cancelled
terminating  terminated
terminated   running cancelling
rejected     preparing
"""
SHARD = """
pending    running paused completed failed cancelled
running    paused completed failed cancelled
paused     running completed failed cancelled
completed  running
failed     running
cancelled
"""
ITEM = """
pending    submitted abandoned
submitted  confirmed failed pending abandoned
confirmed
failed     pending
abandoned
"""


def _legal(table: str) -> set[tuple[str, str]]:
    lines = [line.split() for line in table.strip().splitlines()]
    return {(source, target) for source, *targets in lines for target in targets}


@pytest.mark.parametrize(("source", "target"), list(product(JobStatus, repeat=2)))
def test_job_arrow_any_pair_is_legal_only_if_listed(source: JobStatus, target: JobStatus) -> None:
    legal = (source, target) in _legal(JOB)
    assert (target in JOB_ARROWS[source]) is legal
    assert (source in job_sources(target)) is legal


@pytest.mark.parametrize(("source", "target"), list(product(ShardStatus, repeat=2)))
def test_shard_arrow_any_pair_is_legal_only_if_listed(
    source: ShardStatus, target: ShardStatus
) -> None:
    legal = (source, target) in _legal(SHARD)
    assert (target in SHARD_ARROWS[source]) is legal
    assert (source in shard_sources(target)) is legal


@pytest.mark.parametrize(("source", "target"), list(product(ItemState, repeat=2)))
def test_item_arrow_any_pair_is_legal_only_if_listed(source: ItemState, target: ItemState) -> None:
    legal = (source, target) in _legal(ITEM)
    assert (target in ITEM_ARROWS[source]) is legal
    assert (source in item_sources(target)) is legal


@pytest.mark.parametrize(
    ("states", "labels"),
    [
        (JobStatus, JOB_LABELS),
        (ShardStatus, SHARD_LABELS),
        (ItemState, ITEM_LABELS),
        (PauseReason, PAUSE_LABELS),
        (HoldReason, HOLD_LABELS),
    ],
)
def test_label_every_state_has_one_of_its_own(states, labels) -> None:
    assert set(labels) == set(states)
    assert len(set(labels.values())) == len(labels)
    assert all(labels.values())


@pytest.mark.parametrize(
    ("states", "most"), [(JobStatus, 12), (ShardStatus, 10), (ItemState, 10), (PauseReason, 12)]
)
def test_state_value_fits_its_column(states, most: int) -> None:
    assert all(len(state.value) <= most for state in states)


def test_derived_sets_follow_from_the_arrows() -> None:
    assert {JobStatus.CANCELLED} == JOB_FINAL
    assert JOB_FINAL < JOB_AT_REST
    assert {ItemState.CONFIRMED, ItemState.FAILED, ItemState.ABANDONED} == ITEM_SETTLED
    assert {ShardStatus.PENDING, ShardStatus.RUNNING} == SHARD_RUNNABLE


def test_item_confirmed_or_abandoned_never_leaves() -> None:
    """Nothing that took effect or was given up is ever sent again."""
    assert not ITEM_ARROWS[ItemState.CONFIRMED]
    assert not ITEM_ARROWS[ItemState.ABANDONED]


#: the status that each verb leads to, where it changes it
VERB_TARGETS = {
    Verb.CONFIRM: {JobStatus.RUNNING},
    Verb.PAUSE: {JobStatus.PAUSING, JobStatus.PAUSED},
    Verb.RESUME: {JobStatus.RUNNING},
    Verb.CONFIRM_STAGE: {JobStatus.RUNNING},
    Verb.TERMINATE: {JobStatus.TERMINATING},
}


@pytest.mark.parametrize(("verb", "status"), list(product(VERB_TARGETS, JobStatus)))
def test_verb_sources_have_an_arrow_to_each_target(verb: Verb, status: JobStatus) -> None:
    if status in VERBS[verb].sources:
        assert VERB_TARGETS[verb] <= JOB_ARROWS[status]


@pytest.mark.parametrize("status", JobStatus)
def test_cancel_sources_are_all_states_that_may_be_cancelled(status: JobStatus) -> None:
    targets = {JobStatus.CANCELLING, JobStatus.CANCELLED} & JOB_ARROWS[status]
    expected = bool(targets) and status is not JobStatus.CANCELLING
    assert (status in VERBS[Verb.CANCEL].sources) is expected


@pytest.mark.parametrize("status", JobStatus)
def test_verbs_for_any_status_lists_exactly_the_verbs_with_that_source(status: JobStatus) -> None:
    assert set(verbs_for(status)) == {v for v, info in VERBS.items() if status in info.sources}


def test_verbs_all_have_a_word_and_a_permission() -> None:
    assert set(VERBS) == set(Verb)
    assert all(info.label and info.permission.startswith("batches.") for info in VERBS.values())


@pytest.mark.parametrize("status", JobStatus)
def test_next_move_any_tally_follows_an_arrow(status: JobStatus) -> None:
    for pending, submitted, inflight, used in product((0, 2), (0, 2), (0, 2), (0, 5)):
        move = next_move(
            Tally(
                status=status,
                pending=max(pending, inflight),
                submitted=submitted,
                inflight=inflight,
                budget_limit=5,
                budget_used=used,
                stage_limit=5,
            )
        )
        if move is not None:
            assert move[0] in JOB_ARROWS[status]
