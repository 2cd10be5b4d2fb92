"""What becomes of an item, its budget and its account's pace: one row per outcome.

| outcome               | item                                  | budget   | pace               |
|-----------------------|---------------------------------------|----------|--------------------|
| Accepted, final       | confirmed                             | spent    | recovers           |
| Accepted, not final   | submitted, waits for its confirmation | spent    | recovers           |
| Refused, rate limited | pending, attempt not counted          | returned | halves, then holds |
| Refused, retryable    | pending with backoff, then failed     | returned | –                  |
| Refused, final        | failed                                | returned | counts as bad      |
| NotSent               | pending with backoff, not counted     | returned | holds, bad         |
| NotSent, lane lost    | pending, not counted                  | returned | –                  |
| Unknown               | submitted, in doubt                   | spent    | counts as bad      |
| Unknown, cut off      | submitted, in doubt                   | spent    | –                  |
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

from .categories import CATEGORIES, Category
from .outcomes import Accepted, NotSent, Outcome, Refused, Unknown

#: seconds; full jitter draws from [0, min(cap, base · 2^attempt)]
BACKOFF_BASE = 2.0
BACKOFF_CAP = 300.0
#: seconds an account waits after a rate refusal that names no time
RATE_HOLD = 5.0
#: seconds; the hold after NotSent grows from here, per consecutive one, up to the cap
UNSENT_HOLD_BASE = 1.0
UNSENT_HOLD_CAP = 30.0


class Fate(StrEnum):
    """What the settle does with the item."""

    CONFIRMED = "confirmed"
    ACCEPTED = "accepted"
    FAILED = "failed"
    RETRY = "retry"
    DOUBT = "doubt"


# Not frozen: one is made per item, and a frozen one takes three times as long to make.
@dataclass(slots=True)
class Decision:
    """One outcome, judged."""

    fate: Fate
    outcome: str
    category: str | None = None
    code: str | None = None
    message: str | None = None
    msg_id: str | None = None
    #: seconds before the item may be claimed again
    wait: float = 0.0
    #: False: this try does not use up one of the job's attempts
    counted: bool = True
    #: the send is taken off the budget again (a definite negative)
    refund: bool = False
    #: counts for the breaker
    bad: bool = False
    #: the account's pace is halved
    slow_down: bool = False
    #: seconds during which the account claims nothing
    hold: float = 0.0
    hold_reason: str = ""


def full_jitter(attempt: int, rng: random.Random, base: float, cap: float) -> float:
    """Seconds to wait after the `attempt`-th try (from 1), drawn from [0, min(cap, base·2^n)]."""
    return rng.uniform(0, min(cap, base * 2 ** min(attempt, 16)))


def decide(
    outcome: Outcome,
    *,
    attempt: int,
    max_attempts: int,
    rng: random.Random,
    unsent_streak: int = 1,
    waits_for_confirmation: bool = False,
) -> Decision:
    """Judge one outcome of the `attempt`-th try (from 1) at an item."""
    match outcome:
        case Accepted(msg_id=msg_id, final=final):
            fate = Fate.CONFIRMED if final and not waits_for_confirmation else Fate.ACCEPTED
            return Decision(fate, "accepted", msg_id=msg_id or None)
        case Refused(category=Category.RATE_LIMITED):
            hold = outcome.retry_after if outcome.retry_after is not None else RATE_HOLD
            return Decision(
                Fate.RETRY,
                "refused",
                category=outcome.category,
                code=outcome.code,
                message=outcome.message,
                counted=False,
                refund=True,
                slow_down=True,
                hold=max(0.5, min(hold, 3600.0)) * rng.uniform(1.0, 1.25),
                hold_reason="backoff",
            )
        case Refused():
            again = CATEGORIES[outcome.category].auto_retry and attempt < max_attempts
            wait = 0.0
            if again:
                wait = full_jitter(attempt, rng, BACKOFF_BASE, BACKOFF_CAP)
                wait = max(wait, min(outcome.retry_after or 0.0, 3600.0))
            return Decision(
                Fate.RETRY if again else Fate.FAILED,
                "refused",
                category=outcome.category,
                code=outcome.code,
                message=outcome.message,
                wait=wait,
                refund=True,
                bad=not again,
            )
        case NotSent(category=Category.RENDER):
            return Decision(
                Fate.FAILED,
                "not_sent",
                category=outcome.category,
                message=outcome.message,
                refund=True,
                bad=True,
            )
        case NotSent(category=Category.LOST):
            # our own lease had run out: the gateway did nothing wrong, another lane may go on
            return Decision(
                Fate.RETRY,
                "not_sent",
                category=outcome.category,
                message=outcome.message,
                counted=False,
                refund=True,
            )
        case NotSent():
            hold = min(UNSENT_HOLD_CAP, UNSENT_HOLD_BASE * 2 ** min(unsent_streak - 1, 10))
            return Decision(
                Fate.RETRY,
                "not_sent",
                category=outcome.category,
                message=outcome.message,
                counted=False,
                refund=True,
                bad=True,
                hold=hold * rng.uniform(0.5, 1.0),
                hold_reason="gateway",
            )
        case Unknown():
            return Decision(
                Fate.DOUBT,
                "unknown",
                category=outcome.category,
                message=outcome.message,
                # whom we cut off ourselves had no time to answer
                bad=outcome.category is not Category.ABORTED,
            )
