"""待核实: oldest first, marked with a reason, each finding audited."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from batches.models import Event, Item, Job
from tests.factories import ShardSpec, items_of, make_job

from .pages import text_of

pytestmark = pytest.mark.django_db
QUEUE = "admin:reconcile"


def _mark(client: Client, *items: Item, delivered: str = "1", reason: str = "看过记录") -> Any:
    return client.post(
        reverse("admin:reconcile_mark"),
        {
            "item": [f"{item.job_id}:{item.pk}" for item in items],
            "delivered": delivered,
            "reason": reason,
        },
    )


def _doubts(job: Job) -> list[Item]:
    return [item for item in items_of(job, "submitted") if item.in_doubt_at]


def test_queue_shows_all_jobs_oldest_first_and_only_what_is_in_doubt(client: Client) -> None:
    newer = make_job(shards=[ShardSpec(in_doubt=2, accepted=3, inflight=1, pending=1)])
    older = make_job(shards=[ShardSpec(in_doubt=2)])
    Item.objects.filter(job_id=older.pk).update(in_doubt_at=timezone.now() - timedelta(hours=9))
    page = client.get(reverse(QUEUE))
    assert [item.job_id for item in page.context["items"]] == [older.pk] * 2 + [newer.pk] * 2
    assert [item.overdue for item in page.context["items"]] == [True, True, False, False]
    assert page.context["total"] == 4
    one = client.get(reverse(QUEUE), {"job": newer.pk})
    assert {item.job_id for item in one.context["items"]} == {newer.pk}
    waiting = client.get(reverse(QUEUE), {"job": newer.pk, "kind": "unconfirmed"})
    assert len(waiting.context["items"]) == 3


def test_queue_is_paged_without_loss_or_repetition(client: Client) -> None:
    jobs = [make_job(shards=[ShardSpec(in_doubt=35)]) for _ in range(3)]
    seen: list[int] = []
    query = ""
    for _ in range(3):
        page = client.get(reverse(QUEUE) + query)
        seen += [item.id for item in page.context["items"]]
        query = page.context["next_page"]
    assert query == ""
    assert len(seen) == 105
    assert set(seen) == {item.pk for job in jobs for item in _doubts(job)}


def test_queue_of_more_jobs_than_a_page_is_still_oldest_first(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever jobs the oldest are of, and whatever the numbers of the jobs."""
    monkeypatch.setattr("batches.selectors.items.PAGE_SIZE", 4)
    jobs = [make_job(shards=[ShardSpec(in_doubt=2)]) for _ in range(9)]
    doubts = [item for job in jobs for item in _doubts(job)]
    order = sorted(doubts, key=lambda item: (item.seq, -item.job_id))
    for hours, item in enumerate(reversed(order), start=1):
        at = timezone.now() - timedelta(hours=hours)
        Item.objects.filter(pk=item.pk).update(in_doubt_at=at)
    seen: list[int] = []
    query = ""
    for _ in range(5):
        page = client.get(reverse(QUEUE) + query)
        seen += [item.id for item in page.context["items"]]
        query = page.context["next_page"]
    assert seen == [item.pk for item in order]


def test_queue_counts_every_job_and_says_which_cannot_be_chosen(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batches.selectors.items.JOBS_LISTED", 2)
    jobs = [make_job(shards=[ShardSpec(in_doubt=n)]) for n in (1, 3, 2, 1)]
    page = client.get(reverse(QUEUE))
    assert page.context["total"] == 7
    assert [row.job.pk for row in page.context["jobs"]] == [jobs[1].pk, jobs[2].pk]
    assert "还有 2 个作业有存疑条目" in text_of(page)
    one = client.get(reverse(QUEUE), {"job": jobs[0].pk})
    assert [row.job.pk for row in one.context["jobs"]][-1] == jobs[0].pk
    assert "还有 1 个作业有存疑条目" in text_of(one)
    monkeypatch.undo()
    assert "没有列入可选" not in text_of(client.get(reverse(QUEUE)))


def test_marked_delivered_over_two_jobs_is_confirmed_and_audited(client: Client) -> None:
    jobs = [make_job(shards=[ShardSpec(in_doubt=2)]) for _ in range(2)]
    chosen = [_doubts(job)[0] for job in jobs]
    _mark(client, *chosen)
    for item in chosen:
        item.refresh_from_db()
        assert item.state == "confirmed"
        event = Event.objects.get(item_id=item.pk)
        assert (event.kind, event.reason) == ("item.delivered", "看过记录")
    assert all(len(_doubts(job)) == 1 for job in jobs)


def test_marked_undelivered_is_failed_and_may_be_retried(client: Client) -> None:
    job = make_job(shards=[ShardSpec(in_doubt=1, pending=1)])
    _mark(client, *_doubts(job), delivered="0")
    failed = items_of(job, "failed")
    assert [item.category for item in failed] == ["not_delivered"]


def test_marked_by_somebody_else_meanwhile_is_told(client: Client) -> None:
    job = make_job(shards=[ShardSpec(in_doubt=2)])
    first, second = _doubts(job)
    _mark(client, first)
    response = _mark(client, first, second)
    shown = text_of(client.get(response.headers["Location"]))
    assert "已把 1 条标记为已送达" in shown
    assert "1 条已不在等待核实" in shown
    again = _mark(client, first)
    assert again.status_code == 409


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"delivered": "1", "reason": ""}, "请填写原因"),
        ({"delivered": "maybe", "reason": "x"}, "请选择"),
    ],
)
def test_mark_that_lacks_something_changes_nothing(
    form: dict[str, str], words: str, client: Client
) -> None:
    job = make_job(shards=[ShardSpec(in_doubt=1)])
    item = _doubts(job)[0]
    response = client.post(reverse("admin:reconcile_mark"), {"item": f"{job.pk}:{item.pk}"} | form)
    assert response.status_code == 422
    assert words in text_of(response)
    assert len(_doubts(job)) == 1


def test_mark_without_items_asks_for_them(client: Client) -> None:
    response = client.post(
        reverse("admin:reconcile_mark"), {"delivered": "1", "reason": "x", "item": "nonsense"}
    )
    assert response.status_code == 422


def test_mark_is_for_those_who_may(sign_in: Callable[..., Client]) -> None:
    job = make_job(shards=[ShardSpec(in_doubt=1)])
    others = ("operate_job", "cancel_job", "approve_job", "terminate_job")
    response = _mark(sign_in(*others), *_doubts(job))
    assert response.status_code == 403
    assert len(_doubts(job)) == 1
    assert _mark(sign_in("reconcile_item"), *_doubts(job)).status_code == 303


def test_mark_with_get_is_not_allowed(client: Client) -> None:
    assert client.get(reverse("admin:reconcile_mark")).status_code == 405


@pytest.mark.parametrize("back", ["https://evil.example/", "//evil.example", "javascript:x", ""])
def test_mark_never_leads_outside(back: str, client: Client) -> None:
    job = make_job(shards=[ShardSpec(in_doubt=1)])
    response = client.post(
        reverse("admin:reconcile_mark"),
        {
            "item": f"{job.pk}:{_doubts(job)[0].pk}",
            "delivered": "1",
            "reason": "x",
            "back": back,
        },
    )
    assert response.headers["Location"] == reverse(QUEUE)


def test_stale_page_does_not_mark_the_new_call_of_an_item_sent_again(client: Client) -> None:
    job = make_job(shards=[ShardSpec(in_doubt=2, accepted=1)])
    page = client.get(reverse(QUEUE), {"job": job.pk}).content.decode()
    chosen = re.findall(r'name="item" value="([^"]+)"', page)
    resent, same = _doubts(job)
    assert chosen == [f"{job.pk}:{item.pk}:{item.call_id}" for item in (resent, same)]
    # somebody found the first undelivered and tried it again, and it is in doubt once more
    Item.objects.filter(pk=resent.pk).update(call_id=resent.call_id + 100_000)
    response = client.post(
        reverse("admin:reconcile_mark"), {"item": chosen, "delivered": "0", "reason": "没收到"}
    )
    assert [item.pk for item in _doubts(job)] == [resent.pk]
    assert "1 条已不在等待核实" in text_of(client.get(response.headers["Location"]))
    shown = client.get(reverse(QUEUE), {"job": job.pk, "kind": "unconfirmed"}).content.decode()
    (accepted,) = [item for item in items_of(job, "submitted") if item.accepted_at]
    assert f'value="{job.pk}:{accepted.pk}:{accepted.call_id}"' in shown


def test_mark_beside_a_job_that_is_not_there_marks_the_others_and_says_so(client: Client) -> None:
    """Never "nothing was changed" after something was."""
    job = make_job(shards=[ShardSpec(in_doubt=2)])
    items = [f"{item.job_id}:{item.pk}" for item in _doubts(job)]
    response = client.post(
        reverse("admin:reconcile_mark"),
        {"item": [*items, "999999999:1:1"], "delivered": "1", "reason": "看过记录"},
        follow=True,
    )
    text = text_of(response)
    assert "已把 2 条标记为已送达" in text
    assert "1 条已不在等待核实" in text
