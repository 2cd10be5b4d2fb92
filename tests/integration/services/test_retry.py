"""Failed items taken up again: which, and what becomes of the counters."""

from __future__ import annotations

import pytest
from django.db.models import F

from batches.domain.categories import CATEGORIES, IN_DOUBT, Category
from batches.domain.errors import InvalidInputError, WrongStateError
from batches.domain.states import JobStatus
from batches.models import Event, Item, Job
from batches.selectors.verify import verify
from batches.services.jobs import preview_retry, retry_failed
from tests.factories import ShardSpec, items_of, make_job

pytestmark = pytest.mark.django_db


def _completed() -> Job:
    return make_job(
        status=JobStatus.COMPLETED,
        shards=[
            ShardSpec(confirmed=2, failed=3, category="credential", code="40014"),
            ShardSpec(failed=2, category="target_invalid", code="84061"),
            ShardSpec(confirmed=1, failed=1, category="other", code=None),
        ],
    )


def _states(job: Job) -> list[str]:
    return [item.state for item in items_of(job)]


def test_retry_completed_runs_again_with_what_makes_sense() -> None:
    job = _completed()
    fresh = retry_failed(job_id=job.pk, actor=None)
    assert (fresh.status, fresh.finished_at) == ("running", None)
    first, second, third = job.shards.order_by("ordinal")
    assert (first.status, first.pending, first.failed) == ("running", 3, 0)
    assert (second.status, second.pending, second.failed) == ("failed", 0, 2)
    assert (third.status, third.pending, third.failed) == ("running", 1, 0)
    assert verify().findings == ()
    event = Event.objects.get(job=job)
    assert (event.kind, event.data["count"], event.data["resent"]) == ("job.retried", 4, 0)


def test_retry_keeps_the_last_failure_until_the_next_attempt() -> None:
    job = _completed()
    Item.objects.filter(job_id=job.pk, state="failed").update(attempt=5)
    retry_failed(job_id=job.pk, actor=None, category="credential")
    item = items_of(job, "pending")[0]
    assert (item.attempt, item.due_at, item.settled_at) == (0, None, None)
    assert (item.category, item.code, item.message) == ("credential", "40014", "refused")


def test_retry_named_category_overrides_the_default() -> None:
    job = _completed()
    retry_failed(job_id=job.pk, actor=None, category="target_invalid")
    assert job.shards.get(ordinal=2).status == "running"
    assert _states(job).count("pending") == 2


def test_retry_by_code_narrows_within_the_default() -> None:
    job = _completed()
    retry_failed(job_id=job.pk, actor=None, code="")
    assert [item.shard.ordinal for item in items_of(job, "pending")] == [3]
    with pytest.raises(WrongStateError, match="不宜重试"):
        retry_failed(job_id=job.pk, actor=None, code="84061")


def test_retry_by_shard_takes_that_one_alone() -> None:
    job = _completed()
    retry_failed(job_id=job.pk, actor=None, shard_ordinal=1)
    assert [item.shard.ordinal for item in items_of(job, "pending")] == [1, 1, 1]


def test_retry_named_items_takes_those_and_skips_what_is_not_failed() -> None:
    job = _completed()
    wanted = [items_of(job, "failed")[-2].pk, items_of(job, "confirmed")[0].pk]
    foreign = items_of(_completed(), "failed")[0]
    retry_failed(job_id=job.pk, actor=None, item_ids=[*wanted, foreign.pk])
    assert [item.pk for item in items_of(job, "pending")] == wanted[:1]
    foreign.refresh_from_db()
    assert foreign.state == "failed"


@pytest.mark.parametrize("category", sorted(IN_DOUBT))
def test_retry_of_what_may_have_arrived_is_refused_in_every_way(category: Category) -> None:
    job = make_job(
        status=JobStatus.COMPLETED, shards=[ShardSpec(failed=1, category=category.value)]
    )
    ids = [items_of(job)[0].pk]
    with pytest.raises(InvalidInputError, match="先在「待核实」核实"):
        retry_failed(job_id=job.pk, actor=None, category=category.value)
    with pytest.raises(WrongStateError):
        retry_failed(job_id=job.pk, actor=None, item_ids=ids)
    with pytest.raises(WrongStateError):
        retry_failed(job_id=job.pk, actor=None)
    assert _states(job) == ["failed"]
    assert Job.objects.get(pk=job.pk).status == JobStatus.COMPLETED


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"category": "nonsense"}, "没有失败分类「nonsense」"),
        ({"shard_ordinal": 9}, "没有 9 号分片"),
        ({"item_ids": range(50_001)}, "一次最多选 50000 条"),
    ],
)
def test_retry_with_unusable_arguments_is_refused(words: dict, message: str) -> None:
    job = _completed()
    with pytest.raises(InvalidInputError, match=message):
        retry_failed(job_id=job.pk, actor=None, **words)
    with pytest.raises(InvalidInputError, match=message):
        preview_retry(job_id=job.pk, **words)


def test_retry_twice_finds_nothing_the_second_time() -> None:
    job = _completed()
    retry_failed(job_id=job.pk, actor=None, category="credential")
    with pytest.raises(WrongStateError, match="所选范围内没有失败的条目"):
        retry_failed(job_id=job.pk, actor=None, category="credential")


@pytest.mark.parametrize(
    ("status", "reason"), [("running", ""), ("paused", "operator"), ("verifying", "")]
)
def test_retry_before_the_end_keeps_the_status(status: str, reason: str) -> None:
    job = make_job(
        status=JobStatus(status),
        pause_reason=reason,
        shards=[ShardSpec(accepted=1, failed=1), ShardSpec(failed=1)],
    )
    fresh = retry_failed(job_id=job.pk, actor=None)
    assert (fresh.status, fresh.pause_reason, fresh.version) == (status, reason, job.version + 1)
    assert _states(job).count("pending") == 2
    assert verify().findings == ()


def test_retry_of_undelivered_items_is_an_audited_second_send() -> None:
    job = make_job(
        status=JobStatus.COMPLETED, shards=[ShardSpec(failed=2, category="not_delivered")]
    )
    assert job.budget_used == 2
    retry_failed(job_id=job.pk, actor=None, reason="客户说没收到")
    lines = Event.objects.filter(kind="item.retried").order_by("item_id")
    assert [line.item_id for line in lines] == [item.pk for item in items_of(job)]
    assert {line.reason for line in lines} == {"客户说没收到"}
    assert Job.objects.get(pk=job.pk).budget_used == 2
    assert verify().findings == ()


def test_retry_in_small_chunks_takes_every_item_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batches.store.items.CHUNK", 2)
    job = make_job(
        status=JobStatus.COMPLETED, shards=[ShardSpec(failed=5), ShardSpec(failed=3, confirmed=1)]
    )
    retry_failed(job_id=job.pk, actor=None)
    assert _states(job).count("pending") == 8
    assert list(job.shards.order_by("ordinal").values_list("pending", "failed")) == [
        (5, 0),
        (3, 0),
    ]
    assert Event.objects.get(kind="job.retried").data["count"] == 8


def test_preview_says_which_and_why_not_and_the_act_agrees() -> None:
    job = _completed()
    Job.objects.filter(pk=job.pk).update(budget_limit=F("budget_used") + 3)
    preview = preview_retry(job_id=job.pk)
    assert {group.category: group.count for group in preview.will} == {"credential": 3, "other": 1}
    (left,) = preview.will_not
    assert (left.category, left.count) == ("target_invalid", 2)
    assert left.why == CATEGORIES[Category.TARGET_INVALID].advice
    assert (preview.count, preview.left_out, preview.over_budget) == (4, 2, 1)
    retry_failed(job_id=job.pk, actor=None)
    assert _states(job).count("pending") == preview.count


def test_preview_of_named_items_counts_those_that_are_not_failed() -> None:
    job = _completed()
    preview = preview_retry(job_id=job.pk, item_ids=[item.pk for item in items_of(job)])
    assert preview.count == 6
    assert [(group.category, group.count) for group in preview.will_not] == [("", 3)]
    assert preview.over_budget == 0


def test_preview_of_one_category_does_not_speak_of_others() -> None:
    preview = preview_retry(job_id=_completed().pk, category="other")
    assert [group.category for group in preview.will] == ["other"]
    assert preview.will_not == ()


def test_preview_of_an_unknown_job_says_so() -> None:
    with pytest.raises(InvalidInputError, match="没有编号"):
        preview_retry(job_id=0)
