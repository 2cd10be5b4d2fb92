"""The page of an item tells its whole history: when, what came of it, and who decided."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from batches.models import Call, Event, Item, Job, Shard
from batches.selectors.item_history import item_history
from batches.selectors.items import calls_of
from batches.services import jobs as services
from batches.services.reconcile import mark_items
from batches.store.advance import advance_jobs
from tests.factories import ShardSpec, items_of, make_job, make_user

from .pages import text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def boss(db: None) -> User:
    return make_user(
        "operate_job", "cancel_job", "terminate_job", "reconcile_item", username="王芳"
    )


def _page(client: Client, item: Item) -> str:
    return text_of(client.get(reverse("admin:job_item", args=[item.job_id, item.pk])))


def _told(item: Item) -> list[str]:
    fresh = Item.objects.select_related("shard", "job").get(pk=item.pk)
    return [line.event.kind for line in item_history(fresh, calls_of(fresh))]


def _done(*specs: ShardSpec, **columns: Any) -> Job:
    return make_job(status="completed", shards=specs, **columns)


def _send_again(item: Item, outcome: str = "accepted", **columns: Any) -> None:
    """A further call of the item, made and answered this moment."""
    call = Call.objects.get(pk=item.call_id)
    call.pk, call.outcome = None, outcome
    call.sent_at, call.answered_at = timezone.now(), timezone.now() + timedelta(microseconds=1)
    for name, value in columns.items():
        setattr(call, name, value)
    call.save(force_insert=True)
    state = "failed" if outcome != "accepted" else "confirmed"
    shard, before = Shard.objects.get(pk=item.shard_id), Item.objects.get(pk=item.pk).state
    setattr(shard, before, getattr(shard, before) - 1)
    setattr(shard, state, getattr(shard, state) + 1)
    shard.save()
    Item.objects.filter(pk=item.pk).update(call_id=call.pk, state=state, settled_at=timezone.now())


def test_item_retried_by_category_tells_by_whom_and_why(client: Client, boss: User) -> None:
    job = _done(ShardSpec(failed=2, confirmed=1))
    failed, fine = items_of(job, "failed")[0], items_of(job, "confirmed")[0]
    services.retry_failed(job_id=job.pk, actor=boss, reason="已修好", category="other")
    page = _page(client, failed)
    assert "王芳 重试失败条目" in page
    assert "已修好" in page
    assert _told(fine) == []


def test_item_of_another_scope_is_no_part_of_a_retry() -> None:
    job = _done(ShardSpec(failed=3), ShardSpec(failed=2, category="param"))
    first, second, third = items_of(job, "failed")[:3]
    param = items_of(job, "failed")[3]
    Call.objects.filter(pk=second.call_id).update(code="7")
    Item.objects.filter(pk=second.pk).update(code="7")
    services.retry_failed(job_id=job.pk, actor=None, category="other", code="7")
    assert [bool(_told(item)) for item in (first, second, third, param)] == [
        False, True, False, False,
    ]  # fmt: skip
    services.retry_failed(job_id=job.pk, actor=None, item_ids=[third.pk])
    assert [bool(_told(item)) for item in (first, second, third, param)] == [
        False, True, True, False,
    ]  # fmt: skip
    services.retry_failed(job_id=job.pk, actor=None, shard_ordinal=1)
    assert [len(_told(item)) for item in (first, second, third, param)] == [1, 1, 1, 0]


def test_every_retry_of_an_item_is_told_once_and_only_those() -> None:
    job = _done(ShardSpec(failed=1), ShardSpec(failed=1))
    item, other = items_of(job, "failed")
    services.retry_failed(job_id=job.pk, actor=None, shard_ordinal=1)
    _send_again(item, "refused")
    services.retry_failed(job_id=job.pk, actor=None, shard_ordinal=2)
    assert _told(item) == ["job.retried"]
    assert _told(other) == ["job.retried"]
    other_still = Event.objects.create(kind="job.retried", job=job, data={"category": "other"})
    assert _told(item) == ["job.retried"], "it is failed still: nobody took it up"
    other_still.delete()
    services.retry_failed(job_id=job.pk, actor=None, item_ids=[item.pk])
    assert _told(item) == ["job.retried", "job.retried"]


def test_tries_that_the_lane_makes_by_itself_are_nobodys_retry() -> None:
    job = _done(ShardSpec(failed=1, category="retry_system"), max_attempts=3)
    item = items_of(job)[0]
    Event.objects.create(kind="job.retried", job=job, data={"category": "retry_system"})
    _send_again(item)
    assert _told(item) == []
    Job.objects.filter(pk=job.pk).update(max_attempts=1)
    assert _told(item) == ["job.retried"]


def test_item_limited_in_rate_waits_by_itself() -> None:
    job = _done(ShardSpec(failed=1, category="rate_limited"))
    item = items_of(job)[0]
    Event.objects.create(kind="job.retried", job=job, data={"category": "rate_limited"})
    _send_again(item)
    assert _told(item) == []


def test_item_found_undelivered_and_sent_again_has_one_line_of_it(boss: User) -> None:
    job = make_job(shards=[ShardSpec(in_doubt=1)], status="verifying")
    item = items_of(job)[0]
    mark_items(job_id=job.pk, item_ids=[item.pk], delivered=False, actor=boss, reason="没收到")
    services.retry_failed(job_id=job.pk, actor=boss, category="not_delivered")
    assert _told(item) == ["item.not_delivered", "item.retried"]


def test_abandoned_item_tells_when_and_by_whom(client: Client, boss: User) -> None:
    job = make_job(shards=[ShardSpec(pending=1, confirmed=1)])
    abandoned, sent = items_of(job, "pending")[0], items_of(job, "confirmed")[0]
    services.cancel_job(job_id=job.pk, actor=boss, reason="名单错了")
    advance_jobs([job.pk])
    page = _page(client, abandoned)
    assert "王芳 取消" in page
    assert "名单错了" in page
    assert "了结时间" in page
    assert _told(sent) == []


def test_item_cut_off_tells_who_terminated(boss: User) -> None:
    job = make_job(shards=[ShardSpec(inflight=1, in_doubt=1)])
    cut, other = items_of(job)[1], items_of(job)[0]
    services.terminate_job(job_id=job.pk, actor=boss, reason="出事了")
    Call.objects.filter(pk=cut.call_id).update(
        category="aborted", outcome="unknown", lost_at=timezone.now()
    )
    assert _told(cut) == ["job.terminating"]
    assert _told(other) == []


def test_item_tells_who_started_its_job(client: Client, boss: User) -> None:
    job = make_job(status="awaiting")
    services.confirm_job(job_id=job.pk, actor=boss)
    assert "王芳 确认启动" in _page(client, items_of(job)[0])


def test_item_tells_when_it_was_sent_taken_and_settled(client: Client) -> None:
    job = make_job(shards=[ShardSpec(accepted=1, confirmed=1, pending=1)])
    confirmed, accepted, pending = items_of(job)
    page = _page(client, confirmed)
    assert "最近提交" in page
    assert "了结时间" in page
    page = _page(client, accepted)
    assert "网关接受" in page
    assert "了结时间" not in page
    assert "最近提交" not in _page(client, pending)


def test_item_of_very_many_calls_shows_the_latest_and_says_so(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("batches.selectors.items", "batches.admin.items"):
        monkeypatch.setattr(f"{module}.PAGE_SIZE", 2)
    job = _done(ShardSpec(failed=1))
    item = items_of(job)[0]
    _send_again(item, "refused")
    _send_again(item)
    page = client.get(reverse("admin:job_item", args=[job.pk, item.pk]))
    assert [call.outcome for call in page.context["calls"]] == ["refused", "accepted"]
    assert "只列出最近 2 次" in text_of(page)


def test_histories_read_a_bounded_number_of_events(django_assert_num_queries: Any) -> None:
    job = _done(ShardSpec(failed=1))
    item = Item.objects.select_related("shard", "job").get(job_id=job.pk)
    Event.objects.bulk_create(
        Event(kind="job.retried", job=job, data={"category": "param"}) for _ in range(300)
    )
    with django_assert_num_queries(2):
        assert item_history(item, []) == []


def test_retry_of_very_many_named_items_does_not_list_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("batches.services.retry.NAMED_MOST", 1)
    job = _done(ShardSpec(failed=2))
    services.retry_failed(job_id=job.pk, actor=None, item_ids=[i.pk for i in items_of(job)])
    data = Event.objects.get(job=job, kind="job.retried").data
    assert (data["items"], "item_ids" in data) == (2, False)
