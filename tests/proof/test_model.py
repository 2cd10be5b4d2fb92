"""Random histories of lanes and operators on real PostgreSQL, against the model, step by step.

`PROOF=500` runs so many longer ones, each time others; a failure prints how to repeat it.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from typing import Any, ClassVar
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from psycopg import DatabaseError
from psycopg.errors import DeadlockDetected

from batches.domain.errors import BatchesError
from batches.domain.states import JOB_ARROWS, SHARD_ARROWS, JobStatus, ShardStatus
from batches.domain.verbs import verbs_for
from batches.selectors.verify import verify
from batches.services import jobs as verbs
from batches.services.reconcile import mark_items
from batches.store.advance import advance_jobs, rescue_lost_calls
from batches.store.trips import lose_credential
from tests.integration.store.cleaning import _empty

from . import model as m
from .store import Store, await_queued, barrier, look
from .world import ACCOUNTS, DECISIONS, WORKERS, Begin, Finish, World, compare

pytestmark = pytest.mark.django_db(transaction=True)

THOROUGH = int(os.environ.get("PROOF", "0"))
PROFILE = settings(
    max_examples=THOROUGH or 25,
    stateful_step_count=60 if THOROUGH else 40,
    derandomize=not THOROUGH,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink] if THOROUGH else [Phase.generate],
)
#: each act draws what it needs from a seed of its own, so that a history can be cut down to the
#: acts that matter, and repeated although its calls get other ids
SEEDS = st.integers(0, 2**32)
EVENTS = ["start", "adopt", "adopt", "release", "expire", "end", "rescue", "wait", "wait"]
#: how often each kind of step is taken
KINDS = [
    kind
    for kind, weight in {
        "claim": 5, "settle": 4, "claim_settle_claim": 3, "settle_again": 1,
        "settle_for_a_call_that_never_was": 1, "lanes": 5, "act": 4, "retry_failed": 2,
        "reconcile": 2, "a_login_is_lost": 1, "advance": 2, "race": 5,
    }.items()
    for _ in range(weight)
]  # fmt: skip
VERBS = ["pause", "resume", "resume", "resume", "cancel", "terminate", "raise_budget", "set_rate",
         "pause_shard", "resume_shard", "confirm_stage"]  # fmt: skip
RACERS = ["claim", "claim", "settle", "settle", "verb", "rescue"]
RACES = sorted(set(itertools.combinations(RACERS, 2)))
#: what the histories must come to, for them to count
LEAST = {"claimed": 100, "answered": 100, "races": 50, "verbs": 30, "reconciled": 5, "retried": 3}
ENDS = {"cancel", "terminate"}


class Histories(RuleBasedStateMachine):
    """Lanes that come and go, answers late or twice, and people who change their minds."""

    store: ClassVar[Store]
    counts: ClassVar[Counter[str]]
    world: World

    @initialize(
        size=st.integers(1, 3),
        items=st.integers(2, 5),
        limit=st.sampled_from([None, 4, 9]),
        stages=st.sampled_from([[], [3, 7]]),
        streak=st.sampled_from([2, 10]),
    )
    def build(self, **chosen: Any) -> None:
        _empty()
        self.counts["histories"] += 1
        self.world = World(self.store, **chosen)
        for most in (2, 1):
            self.world.adopt(self.world.start_turn(), most)

    @rule(kind=st.sampled_from(KINDS), seed=SEEDS)
    def step(self, kind: str, seed: int) -> None:
        self.counts[kind] += 1
        getattr(self, f"_{kind}")(random.Random(seed))

    # --- lanes -----------------------------------------------------------------------------------

    def _lanes(self, rng: random.Random) -> None:
        """What happens to turns, and what the housekeeping and the clock do."""
        world, event = self.world, rng.choice(EVENTS)
        lane = rng.choice(world.turns[-WORKERS:])
        match event:
            case "start":
                world.adopt(world.start_turn(), ACCOUNTS)
            case "adopt":
                world.adopt(lane, rng.randint(1, ACCOUNTS))
            case "release":
                world.release(lane, rng.randint(1, ACCOUNTS))
            case "expire":
                world.expire(lane)
            case "end":
                world.end(lane)
            case "rescue":
                assert rescue_lost_calls() == world.model.rescue()
            case _:
                world.wait()

    def _claim(self, rng: random.Random) -> None:
        world = self.world
        if not any(world.model.alive(a.lane) for a in world.model.accounts.values()):
            world.adopt(world.start_turn(), ACCOUNTS)
        if rng.random() < 0.3:
            world.wait()
        before = len(world.model.calls)
        self._do(*world.claim(rng, 0))
        self.counts["claimed"] += len(world.model.calls) - before

    def _settle(self, rng: random.Random) -> None:
        batch = self.world.answers(rng)
        self.counts["answered"] += len(batch)
        self._do(*self.world.settle(0, batch))

    def _claim_settle_claim(self, rng: random.Random) -> None:
        self._claim(rng)
        self._settle(rng)
        self._claim(rng)

    def _settle_again(self, rng: random.Random) -> None:
        """An answer that was recorded before comes once more."""
        if self.world.past:
            again = rng.choice(self.world.past)
            self._do(*self.world.settle(1, [again]))

    def _settle_for_a_call_that_never_was(self, rng: random.Random) -> None:
        item = rng.choice(sorted(self.world.model.items))
        decision = DECISIONS[rng.choice(sorted(DECISIONS))]
        self._do(*self.world.settle(1, [m.Answer(10**12, (item,), (decision,))]))

    def _do(self, begin: Begin, finish: Finish) -> None:
        finish(begin().result(30), self.world.model)

    # --- people, and what stops by itself --------------------------------------------------------

    def _act(self, rng: random.Random) -> None:
        job = self.world.any_job(rng)
        possible = verbs_for(JobStatus(self.world.model.jobs[job].status))
        # mostly what the screens would offer
        verb = rng.choice([v for v in VERBS if v in possible and rng.random() < 0.9] or VERBS)
        if verb in ENDS and rng.random() < 0.8:
            return  # a job in its end is no ground for more
        begin, after = self.world.verb(rng, verb, job)
        try:
            begin()
        except BatchesError:
            return
        self.counts["verbs"] += 1
        after(self.world.model)
        self._observe()

    def _retry_failed(self, rng: random.Random) -> None:
        job = self.world.any_job(rng)
        try:
            verbs.retry_failed(job_id=job, actor=None)
        except BatchesError:
            return
        assert self.world.model.retry_failed(job) > 0
        self.counts["retried"] += 1
        self._observe()

    def _reconcile(self, rng: random.Random) -> None:
        model, delivered = self.world.model, rng.random() < 0.5
        job = self.world.any_job(rng)
        mine = [item.id for item in model.items.values() if model.job_of(item).id == job]
        queue = [i for i in mine if model.items[i].state in (m.ACCEPTED, m.DOUBT)]
        mine = queue if queue and rng.random() < 0.8 else mine
        chosen = rng.sample(mine, k=min(len(mine), rng.randint(1, 4)))
        expected = model.reconcile(chosen, delivered=delivered)
        try:
            marked = mark_items(
                job_id=job, item_ids=chosen, delivered=delivered, actor=None, reason="asked them"
            ).marked
        except BatchesError:
            marked = 0
        assert marked == expected
        self.counts["reconciled"] += marked
        self._observe()
        if marked:  # like every verb it is followed by what is due in its job
            self._abandon_cancelled([model.jobs[job]])

    def _a_login_is_lost(self, rng: random.Random) -> None:
        model = self.world.model
        account = rng.choice(sorted(model.accounts))
        lose_credential(account, note="logged out")
        for shard in model.shards.values():
            if shard.account == account and shard.status in m.RUNNABLE:
                shard.status = "paused"

    def _advance(self, _rng: random.Random) -> None:
        advance_jobs()
        self._observe()
        self._abandon_cancelled(self.world.model.jobs.values())

    def _abandon_cancelled(self, jobs: Iterable[m.JobModel]) -> None:
        for job in jobs:
            if job.status in ("cancelling", "cancelled"):
                self.world.model.abandon(job.id)

    # --- two at once -----------------------------------------------------------------------------

    def _race(self, rng: random.Random) -> None:
        """Two acts that run into each other come out as if one had been first."""
        world, pair = self.world, rng.choice(RACES)
        acts = [self._racer(rng, kind, slot) for slot, kind in enumerate(pair)]
        items = [i.id for i in world.model.items.values() if i.state in (m.FLYING, m.DOUBT)]
        with barrier(jobs=sorted(world.model.jobs), items=rng.choice([[], items])):
            begun = []
            for begin, _finish in acts:
                begun.append(begin())
                await_queued(begun)
        results = [_outcome(future) for future in begun]
        self.counts["races"] += 1
        problems = []
        for order in ((0, 1), (1, 0)):
            trial = world.model.copy()
            try:
                for number in order:
                    if not isinstance(results[number], BatchesError):  # refused: nothing happened
                        acts[number][1](results[number], trial)
                compare(trial, look(), statuses=False)
            except AssertionError as error:
                problems.append(f"{[pair[n] for n in order]}: {error}")
            else:
                world.model = trial
                self._observe(arrows=False)
                return
        raise AssertionError("no order explains what became of it: " + "; ".join(problems))

    def _racer(self, rng: random.Random, kind: str, slot: int) -> tuple[Begin, Finish]:
        world = self.world
        match kind:
            case "claim":
                return world.claim(rng, slot)
            case "settle":
                return world.settle(slot, world.answers(rng))
            case "rescue":
                return world.rescue(slot)
        verb = rng.choice(["pause", "pause", "raise_budget", "set_rate", "cancel"])
        begin, after = world.verb(rng, verb, world.any_job(rng))
        return lambda: world.store.beside(slot, begin), lambda _result, model: after(model)

    # --- the laws --------------------------------------------------------------------------------

    def _observe(self, *, arrows: bool = True) -> None:
        """Statuses move by themselves, and only along arrows that exist."""
        model = self.world.model
        before = {job.id: job.status for job in model.jobs.values()}
        shards = {shard.id: shard.status for shard in model.shards.values()}
        self.world.observe()
        for job in model.jobs.values():
            if arrows and before[job.id] not in ("stopped", job.status):
                assert _reaches(JOB_ARROWS, JobStatus(before[job.id]), JobStatus(job.status))
        for shard in model.shards.values():
            if arrows and shards[shard.id] != shard.status:
                assert ShardStatus(shard.status) in SHARD_ARROWS[ShardStatus(shards[shard.id])]

    @invariant()
    def stored_is_what_the_model_says(self) -> None:
        if hasattr(self, "world"):
            self.counts["steps"] += 1
            compare(self.world.model, look(), statuses=True)

    @invariant()
    def nothing_is_sent_twice(self) -> None:
        if hasattr(self, "world"):
            for item in self.world.model.items.values():
                assert item.possible_effects <= 1 + item.decided, f"{item} may have been sent twice"

    @invariant()
    def verify_finds_nothing(self) -> None:
        assert verify().findings == ()

    def teardown(self) -> None:
        """A race may not come again: what it broke is told at once, not only after a repetition."""
        error = sys.exc_info()[1]
        if isinstance(error, AssertionError | DatabaseError):
            print("model:", "".join(traceback.format_exception(error))[-3000:], file=sys.__stderr__)


def _reaches(arrows: Any, source: JobStatus, target: JobStatus) -> bool:
    """In one step, or two: a verb is followed by what moves by itself at once."""
    return target in arrows[source] or any(target in arrows[via] for via in arrows[source])


def _outcome(future: Future[Any]) -> Any:
    """What an act gave, or how it was refused; a deadlock is nothing that may happen."""
    error = future.exception(60)
    assert not isinstance(error, DeadlockDetected), f"two acts waited for each other: {error}"
    return error if isinstance(error, BatchesError) else future.result()


@pytest.fixture
def histories() -> Iterator[type[Histories]]:
    Histories.store = Store(WORKERS)
    Histories.counts = Counter()
    try:
        with patch("batches.services.acting.wake_lanes"):
            yield Histories
    finally:
        Histories.store.close()


def test_random_histories_keep_the_laws(
    histories: type[Histories], capsys: pytest.CaptureFixture[str]
):
    run_state_machine_as_test(histories, settings=PROFILE)
    with capsys.disabled():
        print(f"\nmodel: {dict(histories.counts)}")
    # a proof that did nothing proves nothing
    for name, least in LEAST.items():
        assert histories.counts[name] >= least, f"{name}: {histories.counts[name]}"
