"""A person's findings about items that nobody confirmed."""

from __future__ import annotations

import pytest

from batches.domain.errors import InvalidInputError, WrongStateError
from batches.domain.states import JobStatus
from batches.models import Event, Item, Job, JobMinute
from batches.selectors.verify import verify
from batches.services.jobs import retry_failed
from batches.services.reconcile import mark_items
from tests.factories import ShardSpec, items_of, make_job, make_user

pytestmark = pytest.mark.django_db


def _mark(job: Job, items: list[Item], *, delivered: bool, **words: object):
    return mark_items(
        job_id=job.pk,
        item_ids=[item.pk for item in items],
        delivered=delivered,
        actor=words.get("actor"),  # type: ignore[arg-type]
        reason="问过客户",
    )


def _doubts(job: Job) -> list[Item]:
    return [item for item in items_of(job, "submitted") if item.in_doubt_at]


def test_mark_delivered_confirms_and_counts() -> None:
    job = make_job(shards=[ShardSpec(pending=1, in_doubt=2, accepted=1, confirmed=1)])
    done = _mark(job, items_of(job, "submitted"), delivered=True)
    assert (done.marked, done.skipped) == (3, 0)
    shard = job.shards.get()
    assert (shard.submitted, shard.in_doubt, shard.confirmed) == (0, 0, 4)
    assert (shard.status, shard.cursor) == ("running", 4)
    item = items_of(job, "confirmed")[-1]
    assert (item.in_doubt_at, item.category, item.settled_at is None) == (None, None, False)
    assert JobMinute.objects.get(job_id=job.pk).confirmed == 3
    assert verify().findings == ()


def test_mark_undelivered_fails_stays_spent_and_may_be_retried() -> None:
    job = make_job(status=JobStatus.VERIFYING, shards=[ShardSpec(in_doubt=2, confirmed=1)])
    _mark(job, _doubts(job), delivered=False)
    failed = items_of(job, "failed")
    assert {(item.category, item.code, item.message) for item in failed} == {
        ("not_delivered", None, "问过客户")
    }
    assert Job.objects.get(pk=job.pk).budget_used == 3
    assert job.shards.get().status == "completed"
    assert verify().findings == ()
    retry_failed(job_id=job.pk, actor=None)
    assert len(items_of(job, "pending")) == 2
    assert verify().findings == ()


def test_mark_leaves_an_audit_line_for_each_item() -> None:
    job = make_job(shards=[ShardSpec(in_doubt=1, accepted=1)])
    items = items_of(job)
    actor = make_user("reconcile_item", first_name="赵敏")
    _mark(job, items, delivered=False, actor=actor)
    lines = Event.objects.filter(job=job).order_by("item_id")
    assert [line.item_id for line in lines] == [item.pk for item in items]
    assert {(line.kind, line.actor_name, line.reason) for line in lines} == {
        ("item.not_delivered", "赵敏", "问过客户")
    }
    assert [line.data["in_doubt"] for line in lines] == [item.in_doubt_at is not None
                                                          for item in items]  # fmt: skip
    assert [line.data["call"] for line in lines] == [item.call_id for item in items]
    assert {line.shard_ordinal for line in lines} == {1}


def test_mark_skips_what_no_longer_waits_and_what_is_not_of_the_job() -> None:
    other = make_job(shards=[ShardSpec(in_doubt=1)])
    job = make_job(shards=[ShardSpec(pending=1, inflight=1, in_doubt=1, confirmed=1, failed=1)])
    done = _mark(job, [*items_of(job), *items_of(other)], delivered=True)
    assert (done.marked, done.skipped) == (1, 5)
    states = sorted(item.state for item in items_of(job))
    assert states == ["confirmed", "confirmed", "failed", "pending", "submitted"]
    assert _doubts(other)
    assert verify().findings == ()


def test_mark_twice_is_refused_the_second_time() -> None:
    job = make_job(shards=[ShardSpec(in_doubt=1)])
    items = items_of(job)
    _mark(job, items, delivered=True)
    with pytest.raises(WrongStateError, match="都不在等待核实"):
        _mark(job, items, delivered=False)
    assert items_of(job)[0].state == "confirmed"


@pytest.mark.parametrize(
    ("delivered", "spec", "status"),
    [
        (True, ShardSpec(in_doubt=1, failed=1), "completed"),
        (False, ShardSpec(in_doubt=1, failed=1), "failed"),
        (False, ShardSpec(in_doubt=1, confirmed=1), "completed"),
        (False, ShardSpec(in_doubt=1, pending=1), "running"),
        (False, ShardSpec(in_doubt=1, inflight=1), "running"),
        (True, ShardSpec(in_doubt=1, status="paused", reason="operator"), "completed"),
    ],
)
def test_mark_the_last_item_ends_the_shard(delivered: bool, spec: ShardSpec, status: str) -> None:
    job = make_job(shards=[spec])
    _mark(job, _doubts(job), delivered=delivered)
    shard = job.shards.get()
    assert (shard.status, shard.reason) == (status, "")


def test_mark_the_last_item_ends_the_job(django_capture_on_commit_callbacks) -> None:
    job = make_job(status=JobStatus.VERIFYING, shards=[ShardSpec(in_doubt=1, confirmed=1)])
    with django_capture_on_commit_callbacks(execute=True):
        _mark(job, _doubts(job), delivered=True)
    assert Job.objects.get(pk=job.pk).status == JobStatus.COMPLETED


def test_mark_in_a_cancelled_job_keeps_it_cancelled() -> None:
    job = make_job(
        status=JobStatus.CANCELLED, shards=[ShardSpec(in_doubt=2, abandoned=1, confirmed=1)]
    )
    _mark(job, _doubts(job), delivered=False)
    assert Job.objects.get(pk=job.pk).status == JobStatus.CANCELLED
    assert job.shards.get().status == "cancelled"
    assert verify().findings == ()


@pytest.mark.parametrize(
    ("ids", "message"), [([], "没有选择条目"), (range(50_001), "一次最多选 50000 条")]
)
def test_mark_an_unusable_selection_is_refused(ids: list[int], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        mark_items(
            job_id=make_job().pk, item_ids=ids, delivered=True, actor=None, reason="问过客户"
        )


def test_mark_skips_an_item_that_was_sent_again_since_the_page_was_shown() -> None:
    job = make_job(shards=[ShardSpec(in_doubt=2)])
    resent, same = _doubts(job)
    done = mark_items(
        job_id=job.pk,
        item_ids=[resent.pk, same.pk],
        calls={resent.pk: resent.call_id - 100_000, same.pk: same.call_id},
        delivered=False,
        actor=None,
        reason="没收到",
    )
    assert (done.marked, done.skipped) == (1, 1)
    assert [item.pk for item in _doubts(job)] == [resent.pk]
    with pytest.raises(WrongStateError):
        mark_items(
            job_id=job.pk,
            item_ids=[resent.pk],
            calls={resent.pk: resent.call_id + 100_000},
            delivered=False,
            actor=None,
            reason="没收到",
        )
