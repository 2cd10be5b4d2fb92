"""Every row of the decision table, and the bounds of everything that is drawn."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batches.domain.categories import CATEGORIES, IN_DOUBT, Category
from batches.domain.decisions import (
    BACKOFF_BASE,
    BACKOFF_CAP,
    RATE_HOLD,
    UNSENT_HOLD_BASE,
    UNSENT_HOLD_CAP,
    Decision,
    Fate,
    decide,
    full_jitter,
)
from batches.domain.outcomes import Accepted, NotSent, Outcome, Refused, Unknown

RETRYABLE = sorted(
    c for c, info in CATEGORIES.items() if info.auto_retry and c is not Category.RATE_LIMITED
)
FINAL = sorted(
    c
    for c, info in CATEGORIES.items()
    if not info.auto_retry and c not in IN_DOUBT and c is not Category.RENDER
)


def judged(outcome: Outcome, *, attempt: int = 1, max_attempts: int = 5, **more) -> Decision:
    seed = more.pop("seed", 1)
    return decide(
        outcome, attempt=attempt, max_attempts=max_attempts, rng=random.Random(seed), **more
    )


# fate, counted, refund, bad, slow_down, holds, waits
Row = tuple[Fate, bool, bool, bool, bool, bool, bool]


def row(d: Decision) -> Row:
    return d.fate, d.counted, d.refund, d.bad, d.slow_down, d.hold > 0, d.wait > 0


TABLE: list[tuple[str, Callable[[], Decision], Row]] = [
    (
        "accepted, final",
        lambda: judged(Accepted("m")),
        (Fate.CONFIRMED, True, False, False, False, False, False),
    ),
    (
        "accepted, not final",
        lambda: judged(Accepted("m", final=False)),
        (Fate.ACCEPTED, True, False, False, False, False, False),
    ),
    (
        "accepted, the job waits for a confirmation",
        lambda: judged(Accepted("m"), waits_for_confirmation=True),
        (Fate.ACCEPTED, True, False, False, False, False, False),
    ),
    (
        "refused, rate limited",
        lambda: judged(Refused(Category.RATE_LIMITED, "45009", "slow", retry_after=9)),
        (Fate.RETRY, False, True, False, True, True, False),
    ),
    (
        "refused, rate limited, at the last attempt",
        lambda: judged(Refused(Category.RATE_LIMITED), attempt=5),
        (Fate.RETRY, False, True, False, True, True, False),
    ),
    (
        "refused, retryable, attempts left",
        lambda: judged(Refused(Category.RETRY_SYSTEM), attempt=4),
        (Fate.RETRY, True, True, False, False, False, True),
    ),
    (
        "refused, retryable, no attempt left",
        lambda: judged(Refused(Category.RETRY_SYSTEM), attempt=5),
        (Fate.FAILED, True, True, True, False, False, False),
    ),
    (
        "refused, final",
        lambda: judged(Refused(Category.TARGET_INVALID, "40003")),
        (Fate.FAILED, True, True, True, False, False, False),
    ),
    (
        "not sent, unreachable",
        lambda: judged(NotSent(Category.UNREACHABLE), attempt=20),
        (Fate.RETRY, False, True, True, False, True, False),
    ),
    (
        "not sent, cannot be built",
        lambda: judged(NotSent(Category.RENDER)),
        (Fate.FAILED, True, True, True, False, False, False),
    ),
    *[
        (
            f"unknown, {category}",
            lambda category=category: judged(Unknown(category)),
            (Fate.DOUBT, True, False, category is not Category.ABORTED, False, False, False),
        )
        for category in sorted(IN_DOUBT)
    ],
]


@pytest.mark.parametrize(("make", "wanted"), [r[1:] for r in TABLE], ids=[r[0] for r in TABLE])
def test_decide_each_outcome_gives_its_row_of_the_table(make, wanted):
    assert row(make()) == wanted


@pytest.mark.parametrize("category", RETRYABLE)
def test_decide_retryable_refusal_comes_back_until_the_last_attempt(category):
    fates = [judged(Refused(category), attempt=n, max_attempts=3).fate for n in (1, 2, 3, 4)]
    assert fates == [Fate.RETRY, Fate.RETRY, Fate.FAILED, Fate.FAILED]


@pytest.mark.parametrize("category", FINAL)
def test_decide_final_refusal_fails_at_once_with_its_words(category):
    d = judged(Refused(category, "123", "words", retry_after=5))
    assert (d.fate, d.outcome, d.category) == (Fate.FAILED, "refused", category)
    assert (d.code, d.message, d.refund) == ("123", "words", True)


@pytest.mark.parametrize("attempt", [1, 5, 20])
@pytest.mark.parametrize("category", sorted(Category))
def test_decide_unknown_outcome_is_never_retried_nor_refunded(category, attempt):
    """The heart of never-twice: no category and no number of attempts makes a doubt a retry."""
    d = judged(Unknown(category), attempt=attempt)
    assert (d.fate, d.refund) == (Fate.DOUBT, False)


def test_decide_budget_returns_only_after_a_definite_negative():
    outcomes: list[Outcome] = [
        make(category) for category in Category for make in (Refused, NotSent, Unknown)
    ]
    for outcome in [*outcomes, Accepted("m"), Accepted("m", final=False)]:
        d = judged(outcome)
        assert d.refund == isinstance(outcome, Refused | NotSent), outcome
        assert (d.fate is Fate.RETRY) <= d.refund, outcome


def test_decide_accepted_without_message_id_keeps_none():
    assert judged(Accepted("")).msg_id is None
    assert judged(Accepted("m1")).msg_id == "m1"


def test_decide_claim_that_was_never_sent_blames_nobody():
    """The lane's own lease ran out: the gateway did nothing wrong and must not be held."""
    d = judged(NotSent(Category.LOST, "lease"))
    assert row(d) == (Fate.RETRY, False, True, False, False, False, False)


seeds = st.integers(0, 2**32)
seconds = st.one_of(st.none(), st.floats(0, 1e9))


@given(seeds, st.integers(1, 10_000), st.floats(0.001, 100), st.floats(0.001, 1000))
def test_full_jitter_any_attempt_stays_within_its_bounds(seed, attempt, base, cap):
    got = full_jitter(attempt, random.Random(seed), base, cap)
    assert 0 <= got <= min(cap, base * 2 ** min(attempt, 16))


def test_full_jitter_is_drawn_from_the_whole_range():
    rng = random.Random(7)
    draws = [full_jitter(3, rng, 2.0, 300.0) for _ in range(4000)]
    assert min(draws) < 0.5
    assert max(draws) > 15.5
    assert 7.5 < sum(draws) / len(draws) < 8.5  # mean of [0, 16]


@given(seeds, st.integers(1, 19), seconds)
def test_decide_backoff_of_a_retryable_refusal_stays_within_bounds(seed, attempt, retry_after):
    refused = Refused(Category.RETRY_SYSTEM, retry_after=retry_after)
    d = judged(refused, attempt=attempt, max_attempts=20, seed=seed)
    asked = min(retry_after or 0.0, 3600.0)
    longest = min(BACKOFF_CAP, BACKOFF_BASE * 2**attempt)
    assert asked <= d.wait <= max(asked, longest)


@given(seeds, seconds)
def test_decide_rate_refusal_holds_for_what_was_asked_and_a_little_more(seed, retry_after):
    d = judged(Refused(Category.RATE_LIMITED, retry_after=retry_after), seed=seed)
    asked = RATE_HOLD if retry_after is None else min(max(retry_after, 0.5), 3600.0)
    assert asked <= d.hold <= asked * 1.25
    assert d.hold_reason == "backoff"


@given(seeds, st.integers(1, 10_000))
def test_decide_unreachable_gateway_holds_longer_each_time_up_to_a_cap(seed, streak):
    d = judged(NotSent(Category.UNREACHABLE), unsent_streak=streak, seed=seed)
    longest = min(UNSENT_HOLD_CAP, UNSENT_HOLD_BASE * 2 ** min(streak - 1, 20))
    assert longest / 2 <= d.hold <= longest
    assert d.hold_reason == "gateway"
