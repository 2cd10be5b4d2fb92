"""No page asks more often, or looks at more items, because a job is larger."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from batches.domain.states import ShardStatus
from batches.models import Job
from tests.factories import ShardSpec, items_of, make_account, make_job

pytestmark = pytest.mark.django_db


def _job(scale: int, *, account: object = None) -> Job:
    spec = ShardSpec(
        pending=2 * scale,
        inflight=1,
        in_doubt=2 * scale,
        confirmed=2 * scale,
        failed=2 * scale,
        account=account or make_account(),
    )
    return make_job(shards=[spec] * scale, budget_limit=1000)


PAGES = {
    "overview": lambda _: reverse("admin:index"),
    "jobs": lambda _: reverse("admin:jobs"),
    "job": lambda job: reverse("admin:job", args=[job.pk]),
    "live": lambda job: reverse("admin:job_live", args=[job.pk]),
    "shards": lambda job: reverse("admin:job_shards", args=[job.pk]),
    "shard": lambda job: reverse("admin:job_shard", args=[job.pk, 1]),
    "item": lambda job: reverse("admin:job_item", args=[job.pk, items_of(job)[0].pk]),
    "failures": lambda job: reverse("admin:job_failures", args=[job.pk]),
    "category": lambda job: reverse("admin:job_category", args=[job.pk, "other"]),
    "reconcile": lambda _: reverse("admin:reconcile"),
    "reconcile job": lambda job: reverse("admin:reconcile") + f"?job={job.pk}",
    "accounts": lambda _: reverse("admin:accounts"),
    "audit": lambda _: reverse("admin:audit"),
}


def _queries(client: Client, address: str) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        assert client.get(address).status_code == 200
    return [query["sql"] for query in captured]


@pytest.mark.parametrize("page", PAGES)
def test_page_of_a_larger_job_makes_as_many_queries(page: str, client: Client) -> None:
    account = make_account()
    small = _job(1, account=account)
    before = len(_queries(client, PAGES[page](small)))
    Job.objects.filter(pk=small.pk).update(status="completed")
    large = _job(6)
    after = len(_queries(client, PAGES[page](large)))
    assert after <= before
    assert before <= 32


def test_list_of_more_jobs_makes_as_many_queries(client: Client) -> None:
    _job(1)
    few = len(_queries(client, reverse("admin:jobs")))
    for _ in range(8):
        _job(1)
    assert len(_queries(client, reverse("admin:jobs"))) == few


@pytest.mark.parametrize("page", ["jobs", "overview"])
def test_page_of_more_jobs_that_their_shards_stopped_makes_as_many_queries(
    page: str, client: Client
) -> None:
    def stopped() -> None:
        shard = ShardSpec(pending=1, status=ShardStatus.PAUSED, reason="breaker")
        make_job(status="paused", pause_reason="breaker", shards=[shard] * 4)

    stopped()
    few = len(_queries(client, PAGES[page](None)))
    for _ in range(5):
        stopped()
    found = client.get(PAGES[page](None))
    assert found.content.decode().count("4 个分片连续失败") >= 6
    assert len(_queries(client, PAGES[page](None))) == few


#: a count or grouping that reads items
_OVER_ITEMS = re.compile(
    r"(count\(|group by).*batches_item|batches_item.*(count\(|group by)", re.DOTALL | re.IGNORECASE
)
#: the first few of a shard, by the index that has them in order
_HEAD = re.compile(
    r"from batches_item\s+where shard_id = s\.id and state = 'pending' order by seq limit \d+"
)


def _over_items(query: str) -> bool:
    return bool(_OVER_ITEMS.search(_HEAD.sub("", query)))


@pytest.mark.parametrize("page", ["overview", "jobs", "shards", "shard", "reconcile", "accounts"])
def test_page_never_counts_items(page: str, client: Client) -> None:
    job = _job(3)
    for query in _queries(client, PAGES[page](job)):
        assert not _over_items(query), query


def test_poll_counts_no_items_but_the_failed_ones_of_its_job(client: Client) -> None:
    job = _job(3)
    counting = [query for query in _queries(client, PAGES["live"](job)) if _over_items(query)]
    assert len(counting) == 1
    assert "\"state\" = 'failed'" in counting[0]


def test_poll_of_many_failures_counts_them_once_in_ten_seconds(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batches.selectors.failures._CHEAP", 1)
    job = _job(3)
    first = _queries(client, PAGES["live"](job))
    second = _queries(client, PAGES["live"](job))
    assert any(_over_items(query) for query in first)
    assert not any(_over_items(query) for query in second)
