"""The proof's world: two jobs on three accounts, with its model, and every act on both at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from typing import Any

from batches.domain.decisions import Decision, Fate
from batches.domain.states import ShardStatus
from batches.services import jobs as verbs
from batches.store.advance import rescue_lost_calls
from batches.store.claim import Want
from batches.store.settle import Settled
from tests.factories import ShardSpec, make_account, make_gateway, make_job

from . import model as m
from .store import Store, Stored, look, sql

#: as many lane workers as the world has; each has one turn at a time
WORKERS = 3
ACCOUNTS = 3

#: how to begin an act, and what the model says once its result is known
Begin = Callable[[], "Future[Any]"]
Finish = Callable[[Any, m.Model], None]

DECISIONS = {
    "confirmed": Decision(Fate.CONFIRMED, "accepted", msg_id="m"),
    "accepted": Decision(Fate.ACCEPTED, "accepted", msg_id="m"),
    "failed": Decision(Fate.FAILED, "refused", category="other", code="1", refund=True, bad=True),
    "invalid": Decision(
        Fate.FAILED, "refused", category="target_invalid", code="2", refund=True, bad=True
    ),
    "retry": Decision(Fate.RETRY, "refused", category="retry_system", refund=True),
    "retry_later": Decision(
        Fate.RETRY, "refused", category="retry_system", refund=True, wait=600.0
    ),
    "limited": Decision(
        Fate.RETRY, "refused", category="rate_limited", refund=True, counted=False,
        slow_down=True, hold=600.0, hold_reason="backoff",
    ),
    "not_sent": Decision(
        Fate.RETRY, "not_sent", category="unreachable", refund=True, counted=False, bad=True,
        hold=600.0, hold_reason="gateway",
    ),
    "unknown": Decision(Fate.DOUBT, "unknown", category="timeout", bad=True),
}  # fmt: skip


class World:
    """Rows and model together."""

    def __init__(
        self,
        store: Store,
        *,
        size: int,
        items: int,
        limit: int | None,
        stages: Sequence[int],
        streak: int,
    ) -> None:
        self.store = store
        self.model = m.Model(size=size)
        self.turns: list[int] = []
        #: answers that were recorded
        self.past: list[m.Answer] = []
        self.truths: dict[int, tuple[Decision, ...]] = {}
        #: shard → since when it was last half-open
        self.probes: dict[int, datetime] = {}
        gateway = make_gateway()
        # so fast that no gate is in the way of a claim that comes a moment later
        accounts = [
            make_account(gateway=gateway, total_rate_per_min=m.FAST) for _ in range(ACCOUNTS)
        ]
        specs = [ShardSpec(pending=items, account=a, status=ShardStatus.PENDING) for a in accounts]
        for limits in (
            {"budget_limit": limit, "breaker_streak": streak},
            {"stages": list(stages), "confirm_policy": "manual"},
        ):
            job = make_job(shards=specs, **limits)
            self.model.jobs[job.pk] = m.JobModel(
                job.pk, limit=job.budget_limit, stages=tuple(job.stages), streak=job.breaker_streak
            )
        for account in accounts:
            self.model.accounts[account.pk] = m.AccountModel(account.pk)
        for row in sql("select id, job_id, account_id, ordinal, status from batches_shard"):
            self.model.shards[row[0]] = m.ShardModel(*row)
        for item, shard in sql("select id, shard_id from batches_item order by shard_id, seq"):
            self.model.items[item] = m.ItemModel(item, shard)

    # --- turns of lanes --------------------------------------------------------------------------

    def start_turn(self) -> int:
        lane = self.store.start_lane()
        self.model.lanes[lane] = True
        self.turns.append(lane)
        return lane

    def adopt(self, lane: int, most: int) -> None:
        expected = self.model.adopt(lane, most)
        assert sorted(self.store.adopt(lane=lane, most=most).result(30)) == expected
        fresh = [
            shard
            for shard in self.model.shards.values()
            if shard.account in expected and shard.status == "pending"
        ]
        self.store.start_shards([shard.id for shard in fresh])
        for shard in fresh:
            shard.status = "running"

    def release(self, lane: int, most: int) -> None:
        mine = [a.id for a in self.model.accounts.values() if a.lane == lane][:most]
        self.store.release(lane, mine)
        for account in mine:
            self.model.accounts[account].lane = None

    def expire(self, lane: int) -> None:
        sql(
            "update batches_lane set lease_expires_at = now() - interval '1 second' where id = %s",
            lane,
        )
        self.model.lanes[lane] = False
        assert self.store.renew_lane(lane) is None, "a lost lease must not come back"

    def end(self, lane: int) -> None:
        self.store.end_lane(lane)
        self.model.lanes[lane] = False
        self.release(lane, ACCOUNTS)

    def wait(self) -> None:
        """Every hold, backoff and step of a ceiling is over: all that was is two minutes older."""
        sql("update batches_call set sent_at = sent_at - interval '2 minutes'")
        sql("update batches_event set at = at - interval '2 minutes'")
        sql("update batches_item set submitted_at = submitted_at - interval '2 minutes'")
        sql("update batches_shard set probe_from = probe_from - interval '2 minutes'")
        self.probes = {shard: at - timedelta(minutes=2) for shard, at in self.probes.items()}
        sql("update batches_item set due_at = null")
        sql("update batches_account set hold_until = null, hold_reason = ''")
        sql(
            "update batches_job set rate_at = now() - interval '1 second' "
            "where rate_limit_per_min is not null"
        )
        self.model.time_passes()

    # --- claims and answers ----------------------------------------------------------------------

    def claim(self, rng: random.Random, slot: int) -> tuple[Begin, Finish]:
        """A claim of what a lane may have in mind: current, stale, named twice, or not its own."""
        owners = [a.lane for a in self.model.accounts.values() if a.lane is not None]
        owners = [lane for lane in owners if self.model.alive(lane)] or owners
        lane = rng.choice(owners if owners and rng.random() < 0.8 else self.turns[-WORKERS:])
        wants = []
        for account in self.model.accounts.values():
            if account.lane != lane and rng.random() < 0.75:
                continue
            shard = rng.choice([s for s in self.model.shards.values() if s.account == account.id])
            ids = [item.id for item in self.model.of_shard(shard.id)]
            pending = [i for i in ids if self.model.items[i].state == m.PENDING]
            pool = pending if pending and rng.random() < 0.7 else ids
            wants.append(m.WantModel(account.id, tuple(rng.choices(pool, k=rng.randint(1, 4)))))
        jobs = sorted({self.model.job_of(self.model.items[i]).id for w in wants for i in w.items})
        sql("update batches_account set gate_at = null")

        def begin() -> Future[Any]:
            asked = [Want(want.account, self.model.size, want.items) for want in wants]
            return self.store.claim(slot, lane=lane, jobs=jobs, wants=asked)

        def finish(result: Any, model: m.Model) -> None:
            calls: dict[int, list[int]] = {}
            for claimed in result.claimed:
                calls.setdefault(claimed.call_id, []).append(claimed.item_id)
            expected = model.may_claim(lane, wants)
            assert sorted(sorted(items) for items in calls.values()) == sorted(
                sorted(items) for items in expected
            ), "claimed what it must not, or too little"
            call_of = {item: call for call, items in calls.items() for item in items}
            for items in expected:
                model.claim(lane, call_of[items[0]], items)
            for claimed in result.claimed:
                assert claimed.attempt == model.items[claimed.item_id].attempt

        return begin, finish

    def answers(self, rng: random.Random) -> list[m.Answer]:
        """Answers to calls that still wait for one, in flight or lost, whoever made them.

        A call has one true answer; before it comes, and after, somebody may say that none came.
        """
        waiting = [call for call in self.model.calls.values() if not call.answered]
        batch = []
        for call in rng.sample(waiting, k=min(len(waiting), rng.randint(0, 4))):
            fates = rng.choices(sorted(DECISIONS), k=len(call.items))
            truth = self.truths.setdefault(call.id, tuple(DECISIONS[fate] for fate in fates))
            silence = (DECISIONS["unknown"],) * len(call.items)
            batch.append(m.Answer(call.id, call.items, truth if rng.random() < 0.8 else silence))
        self.past += batch
        return batch

    def settle(self, slot: int, batch: Sequence[m.Answer]) -> tuple[Begin, Finish]:
        settled = []
        for answer in batch:
            shard = self.model.shards[self.model.items[answer.items[0]].shard]
            settled.append(
                Settled(answer.call, shard.job, shard.account, answer.items, answer.decisions)
            )

        def finish(result: Any, model: m.Model) -> None:
            model.settle(batch)

        return lambda: self.store.settle(slot, settled), finish

    def rescue(self, slot: int) -> tuple[Begin, Finish]:
        def finish(result: Any, model: m.Model) -> None:
            # an answer that is being recorded makes it pass over a call
            assert result <= model.rescue()

        return lambda: self.store.beside(slot, rescue_lost_calls), finish

    # --- people ----------------------------------------------------------------------------------

    def verb(
        self, rng: random.Random, verb: str, job_id: int
    ) -> tuple[Callable[[], object], Callable[[m.Model], None]]:
        """A verb, and what it does to the model if it is not refused."""
        common: dict[str, Any] = {"job_id": job_id, "actor": None, "reason": "because"}
        ordinal = rng.randint(1, ACCOUNTS)
        limit = (self.model.jobs[job_id].limit or 0) + 2
        rate = rng.choice([None, m.SLOW, m.FAST])

        def nothing(model: m.Model) -> None: ...

        def stop(model: m.Model) -> None:
            model.jobs[job_id].status = "stopped"

        def cancel(model: m.Model) -> None:
            stop(model)
            model.abandon(job_id)

        def budget(model: m.Model) -> None:
            model.jobs[job_id].limit = limit

        def pace(model: m.Model) -> None:
            model.set_rate(job_id, rate)

        acts: dict[str, tuple[Callable[[], object], Callable[[m.Model], None]]] = {
            "pause": (lambda: verbs.pause_job(**common), stop),
            "resume": (lambda: verbs.resume_job(**common), nothing),
            "cancel": (lambda: verbs.cancel_job(**common), cancel),
            "terminate": (lambda: verbs.terminate_job(**common), stop),
            "raise_budget": (lambda: verbs.raise_budget(**common, to=limit), budget),
            "set_rate": (lambda: verbs.set_rate(**common, per_min=rate), pace),
            "pause_shard": (lambda: verbs.pause_shard(**common, ordinal=ordinal), nothing),
            "resume_shard": (lambda: verbs.resume_shard(**common, ordinal=ordinal), nothing),
            "confirm_stage": (lambda: verbs.confirm_stage(**common), nothing),
        }
        return acts[verb]

    def any_job(self, rng: random.Random) -> int:
        return rng.choice(sorted(self.model.jobs))

    # --- looking ---------------------------------------------------------------------------------

    def observe(self) -> None:
        """Take over what moved by itself or by a verb: the statuses."""
        seen = look()
        for job_id, (status, _used, _limit, passed, _total) in seen["jobs"].items():
            job = self.model.jobs[job_id]
            job.status, job.passed = status, passed
        for shard_id, row in seen["shards"].items():
            shard = self.model.shards[shard_id]
            shard.status, since = row[7], row[9]
            if since is not None and since != self.probes.get(shard_id):  # a verb's doing
                self.probes[shard_id] = since
                shard.probe = max(self.model.calls, default=0)


def compare(model: m.Model, seen: Stored, *, statuses: bool) -> None:
    """Items, calls, counters, budgets and owners as stored are those of the model."""
    for item_id, (state, call, attempt, waits, accepted, doubt) in seen["items"].items():
        item = model.items[item_id]
        told = state
        if state == "submitted":
            told = m.ACCEPTED if accepted else m.DOUBT if doubt else m.FLYING
        found = (told, call, attempt, waits)
        assert found == (item.state, item.call, item.attempt, item.waits), f"{item}: {found}"
    assert seen["items"].keys() == model.items.keys()
    for shard_id, (*counters, total, status, streak, probe) in seen["shards"].items():
        shard = model.shards[shard_id]
        assert tuple(counters) == model.counters(shard_id), f"{shard}: counters {counters}"
        assert sum(counters) - counters[2] == total, f"{shard}: states do not sum to the total"
        if statuses:
            moved = (status, streak, probe is not None)
            told = (shard.status, shard.bad_streak, shard.probe is not None)
            assert moved == told, f"{shard}: {moved}"
    for job_id, (status, used, limit, _passed, _total) in seen["jobs"].items():
        job = model.jobs[job_id]
        assert (used, limit) == (job.used, job.limit), f"{job}: {used} of {limit} stored"
        assert limit is None or used <= limit
        if statuses:
            assert status == job.status
    for account_id, (lane, held) in seen["accounts"].items():
        account = model.accounts[account_id]
        assert (lane, bool(held)) == (account.lane, account.held), f"{account}: {lane}, {held}"
    stored = {
        call: (lane, tuple(items), answered, lost)
        for call, (lane, items, answered, lost) in seen["calls"].items()
    }
    assert stored == {c.id: (c.lane, c.items, c.answered, c.lost) for c in model.calls.values()}
