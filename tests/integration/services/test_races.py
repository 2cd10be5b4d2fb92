"""Verbs against each other and against a claim, on connections of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.db import connection, connections, transaction
from django.db.models import F
from django.utils import timezone

from batches.domain.errors import BatchesError, StaleVersionError, WrongStateError
from batches.domain.states import JobStatus
from batches.intake.source import source_of
from batches.models import Account, Event, Item, Job, Shard
from batches.selectors.verify import verify
from batches.services import jobs, reconcile, retry
from batches.services.accounts import load_accounts
from batches.services.reconcile import mark_items
from batches.store import items as item_store
from batches.store.queries import sql
from tests.factories import (
    ShardSpec,
    items_of,
    make_account,
    make_job,
    make_lane,
    other_connection,
)

pytestmark = pytest.mark.django_db(transaction=True)
DEADLINE = 20.0


class Act(threading.Thread):
    """Runs a verb on a database connection of its own and keeps what came of it."""

    def __init__(self, verb: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._verb = verb
        self.error: BatchesError | None = None
        self.pid = 0
        self._ready = threading.Event()

    def run(self) -> None:
        try:
            with connection.cursor() as cursor:
                cursor.execute("select pg_backend_pid()")
                self.pid = cursor.fetchone()[0]
            self._ready.set()
            self._verb()
        except BatchesError as error:
            self.error = error
        finally:
            self._ready.set()
            connections.close_all()

    def begin(self) -> Act:
        self.start()
        assert self._ready.wait(DEADLINE)
        return self

    def wait_for_lock(self) -> None:
        """Until PostgreSQL says that it waits for a lock; fails if it never does.

        Asked on a session of its own: within a transaction the answer would stay the first one.
        """
        end = time.monotonic() + DEADLINE
        with other_connection() as watcher:
            watcher.autocommit = True
            while time.monotonic() < end:
                row = watcher.execute(
                    "select wait_event_type from pg_stat_activity where pid = %s", [self.pid]
                ).fetchone()
                if row and row[0] == "Lock":
                    return
                assert self.is_alive(), "it did not wait for the lock"
                time.sleep(0.01)
        pytest.fail("it neither waited nor ended")

    def end(self) -> BatchesError | None:
        self.join(DEADLINE)
        assert not self.is_alive()
        return self.error


@contextmanager
def _claim_at_work(job: Job) -> Iterator[psycopg.Connection[Any]]:
    """Another session that has locked the job row, as a claim does, and not committed yet."""
    with other_connection() as other:
        other.execute(sql("lock_jobs"), {"jobs": [job.pk]})
        yield other


def _claim_one(other: psycopg.Connection[Any], item: Item) -> None:
    """What a claim writes: a call, the item submitted, the budget taken."""
    call = other.execute(
        "insert into batches_call (job_id, shard_id, account_id, lane_id, item_ids, sent_at) "
        "values (%s, %s, %s, %s, %s, now()) returning id",
        [item.job_id, item.shard_id, item.shard.account_id, make_lane().pk, [item.pk]],
    ).fetchone()
    assert call
    other.execute(
        "update batches_item set state = 'submitted', submitted_at = now(), call_id = %s "
        "where id = %s and state = 'pending'",
        [call[0], item.pk],
    )
    other.execute(
        "update batches_job set budget_used = budget_used + 1 where id = %s", [item.job_id]
    )
    other.commit()


def test_pause_during_a_claim_waits_and_sees_what_it_claimed() -> None:
    job = make_job(shards=[ShardSpec(pending=2)])
    with _claim_at_work(job) as other:
        pause = Act(lambda: jobs.pause_job(job_id=job.pk, actor=None)).begin()
        pause.wait_for_lock()
        _claim_one(other, items_of(job)[0])
        assert pause.end() is None
    # the claim came first, so its item is in flight and the job waits for its answer
    assert Job.objects.get(pk=job.pk).status == JobStatus.PAUSING
    assert Event.objects.get(job=job, kind="job.pausing").data["inflight"] == 1
    assert verify().findings == ()


def test_claim_after_a_pause_has_committed_finds_the_job_paused() -> None:
    """The claim locks the job first, then reads: it sees every pause committed before."""
    job = make_job(shards=[ShardSpec(pending=2)])
    with transaction.atomic():
        jobs.pause_job(job_id=job.pk, actor=None)
        seen: list[str] = []

        def claim() -> None:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(sql("lock_jobs"), {"jobs": [job.pk]})
                seen.append(cursor.fetchone()[1])

        act = Act(claim).begin()
        act.wait_for_lock()
    assert act.end() is None
    assert seen == ["paused"]


def test_cancel_during_a_claim_abandons_all_but_what_it_claimed() -> None:
    job = make_job(shards=[ShardSpec(pending=3)])
    with _claim_at_work(job) as other:
        cancel = Act(lambda: jobs.cancel_job(job_id=job.pk, actor=None, reason="不发了")).begin()
        cancel.wait_for_lock()
        _claim_one(other, items_of(job)[0])
        assert cancel.end() is None
    assert [item.state for item in items_of(job)] == ["submitted", "abandoned", "abandoned"]
    assert Job.objects.get(pk=job.pk).status == JobStatus.CANCELLING
    assert verify().findings == ()


def test_pause_and_cancel_at_once_leave_one_consistent_story() -> None:
    job = make_job(shards=[ShardSpec(pending=3)])
    with _claim_at_work(job) as other:
        pause = Act(lambda: jobs.pause_job(job_id=job.pk, actor=None)).begin()
        pause.wait_for_lock()
        cancel = Act(lambda: jobs.cancel_job(job_id=job.pk, actor=None, reason="不发了")).begin()
        cancel.wait_for_lock()
        other.commit()
        pause_error, cancel_error = pause.end(), cancel.end()
    # whichever came first: cancel always wins, a pause after it is refused
    assert cancel_error is None
    assert pause_error is None or isinstance(pause_error, WrongStateError)
    assert Job.objects.get(pk=job.pk).status == JobStatus.CANCELLED
    paused = Event.objects.filter(job=job, kind="job.paused").exists()
    assert paused is (pause_error is None)
    assert verify().findings == ()


def test_same_verb_twice_at_once_works_once() -> None:
    job = make_job(shards=[ShardSpec(pending=1)])
    with _claim_at_work(job) as other:
        acts = [Act(lambda: jobs.pause_job(job_id=job.pk, actor=None)).begin() for _ in range(3)]
        for act in acts:
            act.wait_for_lock()
        other.commit()
        errors = [act.end() for act in acts]
    assert sum(error is None for error in errors) == 1
    assert all(isinstance(error, WrongStateError) for error in errors if error)
    assert Event.objects.filter(job=job, kind="job.paused").count() == 1
    assert Job.objects.get(pk=job.pk).version == 1


def test_two_pages_of_one_version_only_the_first_is_heard() -> None:
    job = make_job(budget_limit=10, shards=[ShardSpec(pending=1)])

    def raise_to(limit: int) -> Callable[[], Job]:
        return lambda: jobs.raise_budget(
            job_id=job.pk, actor=None, to=limit, reason="r", expected_version=job.version
        )

    with _claim_at_work(job) as other:
        acts = [Act(raise_to(20)).begin(), Act(raise_to(30)).begin()]
        for act in acts:
            act.wait_for_lock()
        other.commit()
        errors = [act.end() for act in acts]
    stale = [error for error in errors if error]
    assert [type(error) for error in stale] == [StaleVersionError]
    assert Job.objects.get(pk=job.pk).budget_limit in (20, 30)
    assert Event.objects.filter(kind="job.budget_raised").count() == 1


def test_two_persons_reconcile_the_same_item_only_one_is_recorded() -> None:
    job = make_job(status=JobStatus.VERIFYING, shards=[ShardSpec(in_doubt=2)])
    ids = [item.pk for item in items_of(job)]

    def mark(delivered: bool) -> Callable[[], Any]:
        return lambda: mark_items(
            job_id=job.pk, item_ids=ids, delivered=delivered, actor=None, reason="问过客户"
        )

    with _claim_at_work(job) as other:
        acts = [Act(mark(True)).begin(), Act(mark(False)).begin()]
        for act in acts:
            act.wait_for_lock()
        other.commit()
        errors = [act.end() for act in acts]
    assert sum(error is None for error in errors) == 1
    assert Event.objects.filter(item_id__in=ids).count() == 2
    assert len({item.state for item in items_of(job)}) == 1
    assert verify().findings == ()


def test_retry_and_settle_of_the_same_shard_keep_the_counters() -> None:
    """A settle of plain answers takes no job lock: the verb's updates must be relative."""
    job = make_job(shards=[ShardSpec(inflight=1, failed=2)])
    (item,) = items_of(job, "submitted")
    with other_connection() as other:
        other.execute(
            "update batches_item set state = 'confirmed', settled_at = now() where id = %s",
            [item.pk],
        )
        other.execute("update batches_call set answered_at = now(), outcome = 'accepted'")
        other.execute(
            "update batches_shard set pending = pending - 1, confirmed = confirmed + 1 "
            "where id = %s",
            [item.shard_id],
        )
        retry = Act(lambda: jobs.retry_failed(job_id=job.pk, actor=None)).begin()
        retry.wait_for_lock()
        other.commit()
    assert retry.end() is None
    shard = job.shards.get()
    assert (shard.pending, shard.confirmed, shard.failed, shard.status) == (2, 1, 0, "running")
    assert verify().findings == ()


@contextmanager
def _between(
    monkeypatch: pytest.MonkeyPatch, module: Any, do: Callable[[int], None]
) -> Iterator[None]:
    """Calls `do(n)` before the n-th transaction of a verb in `module`, n from 1."""
    original = module.acting
    seen: list[int] = []

    def acting(*arguments: Any, **words: Any) -> Any:
        seen.append(1)
        do(len(seen))
        return original(*arguments, **words)

    with monkeypatch.context() as patch:
        patch.setattr(item_store, "CHUNK", 2)
        patch.setattr(module, "acting", acting)
        yield


def _lock_now(job: Job) -> None:
    """As a claim of another session: at once, or an error."""
    with other_connection() as other:
        other.execute(sql("lock_jobs").replace("for no key update", "for no key update nowait"),
                      {"jobs": [job.pk]})  # fmt: skip


def test_retry_of_many_lets_claims_in_between_and_adds_up_at_every_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = make_job(
        status=JobStatus.COMPLETED, shards=[ShardSpec(failed=5), ShardSpec(failed=2, confirmed=1)]
    )
    seen: list[tuple[int, str]] = []

    def look(number: int) -> None:
        _lock_now(job)
        assert verify().findings == ()
        state = Job.objects.get(pk=job.pk).status
        seen.append((len(items_of(job, "pending")), state))

    with _between(monkeypatch, retry, look):
        jobs.retry_failed(job_id=job.pk, actor=None)
    assert seen == [(0, "completed"), (2, "running"), (4, "running"), (6, "running")]
    assert len(items_of(job, "pending")) == 7
    assert verify().findings == ()
    moved, done = Event.objects.filter(job=job).order_by("id")
    assert (moved.kind, moved.data["before"]["status"]) == ("job.running", "completed")
    assert (done.kind, done.data["count"]) == ("job.retried", 7)


def test_retry_of_many_ends_where_a_cancel_comes_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = make_job(shards=[ShardSpec(failed=5, pending=1)])

    def cancel(number: int) -> None:
        if number == 2:
            Job.objects.filter(pk=job.pk).update(status=JobStatus.CANCELLING)

    with _between(monkeypatch, retry, cancel):
        jobs.retry_failed(job_id=job.pk, actor=None)
    assert len(items_of(job, "failed")) == 3
    event = Event.objects.get(job=job, kind="job.retried")
    assert (event.data["count"], event.data["unfinished"]) == (2, True)


def test_retry_of_many_does_not_take_up_again_what_fails_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = make_job(shards=[ShardSpec(failed=5, pending=1)])
    tried: list[int] = []

    def refuse(number: int) -> None:
        assert number < 9, "it goes round for ever"
        for item in items_of(job, "pending"):
            if item.category:
                tried.append(item.pk)
                Item.objects.filter(pk=item.pk).update(state="failed", settled_at=timezone.now())
                Shard.objects.filter(pk=item.shard_id).update(
                    pending=F("pending") - 1, failed=F("failed") + 1
                )

    with _between(monkeypatch, retry, refuse):
        jobs.retry_failed(job_id=job.pk, actor=None)
    assert len(tried) == len(set(tried)) == 4
    assert Event.objects.get(job=job, kind="job.retried").data["count"] == 5


def test_retry_of_many_named_items_takes_each(monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job(shards=[ShardSpec(failed=5, confirmed=4, pending=1)])
    ids = [item.pk for item in items_of(job)]
    with _between(monkeypatch, retry, lambda _number: _lock_now(job)):
        jobs.retry_failed(job_id=job.pk, actor=None, item_ids=ids)
    assert items_of(job, "failed") == []
    assert Event.objects.get(job=job, kind="job.retried").data["count"] == 5


def test_mark_many_lets_claims_in_between_and_adds_up_at_every_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = make_job(shards=[ShardSpec(in_doubt=3, pending=1), ShardSpec(accepted=2)])
    seen: list[int] = []

    def look(number: int) -> None:
        _lock_now(job)
        assert verify().findings == ()
        seen.append(len(items_of(job, "confirmed")))

    ids = [item.pk for item in items_of(job)]
    with _between(monkeypatch, reconcile, look):
        done = mark_items(job_id=job.pk, item_ids=ids, delivered=True, actor=None, reason="查过")
    assert seen == [0, 2, 3]
    assert (done.marked, done.skipped) == (5, 1)
    assert verify().findings == ()


def _load(*accounts: Account, per_min: int) -> None:
    lines = ["gateway_url,guid,total_rate_per_min"]
    lines += [f"{account.gateway.base_url},{account.guid},{per_min}" for account in accounts]
    load_accounts(actor=None, source=source_of("a.csv", "\n".join(lines).encode()))


def test_accounts_loaded_beside_a_claim_are_locked_in_its_order() -> None:
    first, second = (make_account(total_rate_per_min=60) for _ in range(2))
    lock = "select 1 from batches_account where id = %s for no key update nowait"
    with other_connection() as claim:
        claim.execute(lock, [first.pk])
        load = Act(lambda: _load(second, first, per_min=90)).begin()
        load.wait_for_lock()
        claim.execute(lock, [second.pk])
        claim.commit()
        assert load.end() is None
    assert set(Account.objects.values_list("total_rate_per_min", flat=True)) == {90}


def test_accounts_loaded_as_they_are_wait_for_nobody() -> None:
    same, changed = (make_account(total_rate_per_min=rate) for rate in (90, 60))
    with other_connection() as claim:
        claim.execute("select 1 from batches_account where id = %s for no key update", [same.pk])
        load = Act(lambda: _load(same, changed, per_min=90)).begin()
        assert load.end() is None
    changed.refresh_from_db()
    assert changed.total_rate_per_min == 90
