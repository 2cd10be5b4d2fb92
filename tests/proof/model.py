"""What claim, settle, rescue and the operator's verbs may do to items: a model in plain Python.

It knows no SQL. Statuses of jobs and shards that move by themselves are observed; everything that
the laws speak of (items, calls, budget, ownership) is predicted and compared.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from batches.domain.categories import CATEGORIES, Category
from batches.domain.decisions import Decision, Fate

RUNNABLE = ("pending", "running")
#: the states of an item; `submitted` is told apart, as people need it to be
PENDING, FLYING, ACCEPTED, DOUBT = "pending", "flying", "accepted", "doubt"
#: items a minute
SLOW, FAST = 1, 60_000_000
CONFIRMED, FAILED, ABANDONED = "confirmed", "failed", "abandoned"


@dataclass
class ItemModel:
    id: int
    shard: int
    state: str = PENDING
    call: int | None = None
    attempt: int = 0
    #: waits after a refusal
    waits: bool = False
    category: str | None = None
    #: what became of each call that carried it: open, negative, positive, unknown
    fates: dict[int, str] = field(default_factory=dict)
    #: how often a person decided to send it again although it had been sent
    decided: int = 0

    @property
    def possible_effects(self) -> int:
        """Calls after which the target may have been reached."""
        return sum(fate != "negative" for fate in self.fates.values())


@dataclass
class CallModel:
    id: int
    lane: int
    items: tuple[int, ...]
    answered: bool = False
    lost: bool = False

    @property
    def open(self) -> bool:
        return not (self.answered or self.lost)


@dataclass
class ShardModel:
    id: int
    job: int
    account: int
    ordinal: int
    status: str = "running"
    bad_streak: int = 0
    #: half-open: of the calls after this one, one item at a time until one went well
    probe: int | None = None


@dataclass
class JobModel:
    id: int
    status: str = "running"
    used: int = 0
    limit: int | None = None
    stages: tuple[int, ...] = ()
    passed: int = 0
    streak: int = 10
    #: its ceiling: none, one that is never felt, or one item a minute
    rate: int | None = None
    #: whether that one item may pass now
    gate_open: bool = True

    def room(self) -> int:
        stage = self.stages[self.passed] if self.passed < len(self.stages) else None
        limits = [limit - self.used for limit in (self.limit, stage) if limit is not None]
        if self.rate == SLOW:
            limits.append(int(self.gate_open))
        return min(limits, default=10**9)


@dataclass
class AccountModel:
    id: int
    lane: int | None = None
    held: bool = False


@dataclass(frozen=True)
class WantModel:
    """One call that a lane asks for."""

    account: int
    items: tuple[int, ...]


@dataclass
class Answer:
    """What came of one call, per item."""

    call: int
    items: tuple[int, ...]
    decisions: tuple[Decision, ...]


class Model:
    """The whole world; `copy` it to try another order of two acts."""

    def __init__(self, *, size: int) -> None:
        self.size = size
        self.jobs: dict[int, JobModel] = {}
        self.shards: dict[int, ShardModel] = {}
        self.accounts: dict[int, AccountModel] = {}
        self.items: dict[int, ItemModel] = {}
        self.calls: dict[int, CallModel] = {}
        #: id → alive
        self.lanes: dict[int, bool] = {}

    def copy(self) -> Model:
        return copy.deepcopy(self)

    # --- looking ---------------------------------------------------------------------------------

    def of_shard(self, shard: int) -> list[ItemModel]:
        return [item for item in self.items.values() if item.shard == shard]

    def job_of(self, item: ItemModel) -> JobModel:
        return self.jobs[self.shards[item.shard].job]

    def alive(self, lane: int | None) -> bool:
        return lane is not None and self.lanes.get(lane, False)

    def counters(self, shard: int) -> tuple[int, ...]:
        """pending (with those in flight), submitted, in doubt, confirmed, failed, abandoned."""
        states = [item.state for item in self.of_shard(shard)]
        return (
            states.count(PENDING) + states.count(FLYING),
            states.count(ACCEPTED) + states.count(DOUBT),
            states.count(DOUBT),
            states.count(CONFIRMED),
            states.count(FAILED),
            states.count(ABANDONED),
        )

    def in_flight(self, job: int) -> int:
        return sum(
            item.state == FLYING for item in self.items.values() if self.job_of(item).id == job
        )

    # --- lanes -----------------------------------------------------------------------------------

    def adopt(self, lane: int, most: int) -> list[int]:
        if not self.alive(lane):
            return []
        free = [
            account
            for account in sorted(self.accounts)
            if not self.alive(self.accounts[account].lane)
            and any(
                shard.account == account
                and shard.status in RUNNABLE
                and self.jobs[shard.job].status == "running"
                and self.counters(shard.id)[0] > 0
                for shard in self.shards.values()
            )
        ][:most]
        for account in free:
            self.accounts[account].lane = lane
        return free

    def rescue(self) -> int:
        lost = [c for c in self.calls.values() if c.open and not self.alive(c.lane)]
        for call in lost:
            call.lost = True
            for item in map(self.items.__getitem__, call.items):
                if item.call == call.id and item.state == FLYING:
                    item.state, item.category = DOUBT, "lost"
        return len(lost)

    # --- the claim -------------------------------------------------------------------------------

    def may_claim(self, lane: int, wants: Sequence[WantModel]) -> list[tuple[int, ...]]:
        """Items of each call that a claim must make now: no more, and no fewer."""
        taken: dict[int, int] = {}
        seen: set[int] = set()
        calls = []
        for want in wants:
            account = self.accounts[want.account]
            ours = self.alive(lane) and account.lane == lane and not account.held
            fitting = [
                item
                for item in dict.fromkeys(want.items)
                if ours and item not in seen and self._may_go(self.items[item])
            ][: self.size]
            if fitting and self.shards[self.items[fitting[0]].shard].probe is not None:
                fitting = [] if self._tries(self.items[fitting[0]].shard) else fitting[:1]
            call = []
            for item in fitting:
                job = self.job_of(self.items[item])
                if job.status == "running" and taken.get(job.id, 0) < job.room():
                    taken[job.id] = taken.get(job.id, 0) + 1
                    call.append(item)
                    seen.add(item)
            if call:
                calls.append(tuple(call))
        return calls

    def _tries(self, shard: int) -> bool:
        """Whether the one item of a half-open shard is under way."""
        since = self.shards[shard].probe
        return since is not None and any(
            call.open and call.id > since and self.items[call.items[0]].shard == shard
            for call in self.calls.values()
        )

    def _may_go(self, item: ItemModel) -> bool:
        return (
            item.state == PENDING and not item.waits and self.shards[item.shard].status in RUNNABLE
        )

    def claim(self, lane: int, call: int, items: Iterable[int]) -> None:
        self.calls[call] = CallModel(call, lane, tuple(items))
        for item in map(self.items.__getitem__, self.calls[call].items):
            item.state, item.call, item.waits = FLYING, call, False
            item.attempt += 1
            item.fates[call] = "open"
            job = self.job_of(item)
            job.used += 1
            job.gate_open = False

    # --- the settle ------------------------------------------------------------------------------

    def settle(self, answers: Sequence[Answer]) -> None:
        moved: dict[int, list[tuple[int, Decision]]] = {}
        for answer in answers:
            if self._settle_call(answer) and any(d.hold for d in answer.decisions):
                self.accounts[self.shards[self.items[answer.items[0]].shard].account].held = True
            for item_id, decision in zip(answer.items, answer.decisions, strict=True):
                item = self.items[item_id]
                self._note_fate(item, answer.call, decision)
                waiting = item.call == answer.call and item.state in (FLYING, DOUBT)
                if waiting and not (decision.fate is Fate.DOUBT and item.state == DOUBT):
                    self._settle_item(item, decision)
                    moved.setdefault(item.shard, []).append((answer.call, decision))
        for shard, outcomes in moved.items():
            self._move_shard(self.shards[shard], outcomes)

    def _settle_call(self, answer: Answer) -> bool:
        """Whether the call was still without an answer."""
        call = self.calls.get(answer.call)
        if call is None or call.answered:
            return False
        if all(decision.outcome == "unknown" for decision in answer.decisions):
            call.lost = True
        else:
            call.answered = True
        return True

    @staticmethod
    def _note_fate(item: ItemModel, call: int, decision: Decision) -> None:
        if item.fates.get(call) in ("open", "unknown"):
            negative = decision.outcome in ("refused", "not_sent")
            item.fates[call] = (
                "unknown"
                if decision.outcome == "unknown"
                else "negative" if negative else "positive"
            )  # fmt: skip

    def _settle_item(self, item: ItemModel, decision: Decision) -> None:
        job = self.job_of(item)
        item.category = decision.category
        item.attempt -= not decision.counted
        job.used -= decision.refund
        match decision.fate:
            case Fate.RETRY if job.status == "cancelled":
                item.state = ABANDONED
            case Fate.RETRY:
                item.state, item.waits = PENDING, decision.wait > 0
            case Fate.CONFIRMED:
                item.state = CONFIRMED
            case Fate.ACCEPTED:
                item.state = ACCEPTED
            case Fate.FAILED:
                item.state = FAILED
            case Fate.DOUBT:
                item.state = DOUBT

    def _move_shard(self, shard: ShardModel, outcomes: Sequence[tuple[int, Decision]]) -> None:
        bad = sum(decision.bad for _, decision in outcomes)
        good = any(_went_well(decision) for _, decision in outcomes)
        before = shard.bad_streak
        shard.bad_streak = 0 if good else before + bad
        since = shard.probe
        tried = [d for call, d in outcomes if since is not None and call > since]
        if any(_went_well(decision) for decision in tried):
            shard.probe = None
        pending, submitted, _doubt, _confirmed, failed, _abandoned = self.counters(shard.id)
        if pending == 0 and submitted == 0 and shard.status in (*RUNNABLE, "paused"):
            everything = failed == len(self.of_shard(shard.id))
            shard.status = "failed" if everything else "completed"
        elif shard.status in RUNNABLE and since is not None:
            failed_trial = shard.probe is not None and any(d.bad for d in tried)
            shard.status = "paused" if failed_trial else shard.status
        elif shard.status in RUNNABLE and not good and bad >= 1:
            tripped = shard.bad_streak >= self.jobs[shard.job].streak
            shard.status = "paused" if tripped else shard.status

    # --- the operator ----------------------------------------------------------------------------

    def abandon(self, job: int) -> None:
        for item in self.items.values():
            if self.job_of(item).id == job and item.state == PENDING:
                item.state, item.waits = ABANDONED, False

    def retry_failed(self, job: int) -> int:
        found = [
            item
            for item in self.items.values()
            if self.job_of(item).id == job
            and item.state == FAILED
            and CATEGORIES[Category(str(item.category))].operator_retry
        ]
        for item in found:
            item.decided += item.category == "not_delivered"
            item.state, item.attempt, item.waits = PENDING, 0, False
        return len(found)

    def reconcile(self, items: Iterable[int], *, delivered: bool) -> int:
        found = [i for i in map(self.items.__getitem__, items) if i.state in (ACCEPTED, DOUBT)]
        for item in found:
            item.state = CONFIRMED if delivered else FAILED
            item.category = None if delivered else "not_delivered"
        return len(found)

    def set_rate(self, job: int, rate: int | None) -> None:
        """A ceiling where there was none begins with a wait, another one with what was due."""
        model = self.jobs[job]
        if rate == SLOW and model.rate != SLOW:
            model.gate_open = model.rate is not None
        model.rate = rate

    def time_passes(self) -> None:
        """Every wait is over."""
        for item in self.items.values():
            item.waits = False
        for account in self.accounts.values():
            account.held = False
        for job in self.jobs.values():
            job.gate_open = True


def _went_well(decision: Decision) -> bool:
    return decision.fate in (Fate.CONFIRMED, Fate.ACCEPTED)
