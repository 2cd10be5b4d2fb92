"""失败下钻 of one shard, hence of one account: list, counts, export and retry keep to it."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse

from batches.models import Item, Job, Shard
from batches.selectors.failures import failed_items, failures_by_code
from batches.store.queries import sql
from tests.factories import ShardSpec, items_of, make_account, make_job

from .pages import faults_of, text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(db: None) -> Job:
    """Two accounts: one with two kinds of failure, the other with three of one kind."""
    job = make_job(
        status="completed",
        shards=[
            ShardSpec(failed=4, confirmed=1, category="rate_limited", code="45009",
                      account=make_account(name="客服甲")),
            ShardSpec(failed=3, category="rate_limited", code="1",
                      account=make_account(name="客服乙")),
        ],
    )  # fmt: skip
    first = [item.pk for item in items_of(job, "failed") if item.shard.ordinal == 1]
    Item.objects.filter(pk=first[0]).update(category="other", code=None)
    Item.objects.filter(pk=first[1]).update(code="7")
    return job


def _exported(client: Client, job: Job, **query: str) -> list[list[str]]:
    response: Any = client.get(reverse("admin:job_failures_csv", args=[job.pk]), query)
    body = b"".join(response.streaming_content).decode("utf-8-sig")
    return list(csv.reader(io.StringIO(body)))[1:]


def test_categories_of_a_shard_count_that_one_alone(client: Client, job: Job) -> None:
    address = reverse("admin:job_failures", args=[job.pk])
    page = client.get(address, {"shard": "1"})
    assert [(row.category, row.count) for row in page.context["categories"]] == [
        ("rate_limited", 3),
        ("other", 1),
    ]
    assert "失败下钻（4 条）" in text_of(page)
    html = page.content.decode()
    assert faults_of(html) == []
    within = reverse("admin:job_category", args=[job.pk, "rate_limited"])
    assert f'href="{within}?shard=1"' in html
    assert f'href="{reverse("admin:job_failures_csv", args=[job.pk])}?shard=1"' in html
    assert f'href="{reverse("admin:job_retry", args=[job.pk])}?shard=1"' in html


def test_accounts_with_failures_are_offered_most_first(client: Client, job: Job) -> None:
    text = text_of(client.get(reverse("admin:job_failures", args=[job.pk])))
    assert text.index("客服甲 · 分片 #1（4）") < text.index("客服乙 · 分片 #2（3）")


def test_shard_chosen_beyond_the_list_is_listed_and_the_rest_named(
    client: Client, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("batches.selectors.failures", "batches.admin.failures"):
        monkeypatch.setattr(f"{module}.SHARDS_LISTED", 1)
    page = client.get(reverse("admin:job_failures", args=[job.pk]), {"shard": "2"})
    assert [shard.ordinal for shard in page.context["shards"]] == [2, 1]
    assert "只列出失败最多的分片" in text_of(page)


def test_category_of_a_shard_lists_counts_retries_and_exports_it(client: Client, job: Job) -> None:
    address = reverse("admin:job_category", args=[job.pk, "rate_limited"])
    page = client.get(address, {"shard": "1"})
    assert {item.shard.ordinal for item in page.context["items"]} == {1}
    assert [(row.code, row.count) for row in page.context["codes"]] == [("45009", 2), ("7", 1)]
    assert page.context["count"] == 3
    html = page.content.decode()
    assert faults_of(html) == []
    assert 'href="?shard=1&amp;code=45009"' in html
    query = "category=rate_limited&amp;shard=1"
    assert f"{reverse('admin:job_retry', args=[job.pk])}?{query}" in html
    assert f"{reverse('admin:job_failures_csv', args=[job.pk])}?{query}" in html
    one = client.get(address, {"shard": "1", "code": "7"})
    assert [item.code for item in one.context["items"]] == ["7"]
    assert one.context["query"] == "category=rate_limited&shard=1&code=7"
    other = client.get(reverse("admin:job_category", args=[job.pk, "other"]), {"shard": "1"})
    assert len(other.context["items"]) == 1
    assert len(client.get(address, {"shard": ""}).context["items"]) == 6


def test_retry_from_a_category_of_a_shard_takes_that_alone(client: Client, job: Job) -> None:
    page = client.get(reverse("admin:job_category", args=[job.pk, "rate_limited"]), {"shard": "1"})
    asked = client.get(f"{reverse('admin:job_retry', args=[job.pk])}?{page.context['query']}")
    assert "重试 3 条" in text_of(asked)


def test_export_of_a_shard_has_no_other(client: Client, job: Job) -> None:
    guid = Shard.objects.get(job=job, ordinal=1).account.guid
    rows = _exported(client, job, shard="1")
    assert [row[1] for row in rows] == [guid] * 4
    assert len(_exported(client, job, shard="1", category="rate_limited")) == 3
    assert len(_exported(client, job, shard="1", category="rate_limited", code="7")) == 1
    assert len(_exported(client, job)) == 7


def test_export_of_a_shard_is_taken_in_chunks_and_complete(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batches.selectors.failures._EXPORT_CHUNK", 7)
    job = make_job(status="completed", shards=[ShardSpec(failed=20), ShardSpec(failed=3)])
    rows = _exported(client, job, shard="1")
    assert [int(row[0]) for row in rows] == list(range(2, 22))


def test_items_of_a_shard_are_paged_without_loss_or_repetition(client: Client) -> None:
    job = make_job(status="completed", shards=[ShardSpec(failed=120), ShardSpec(failed=9)])
    address = reverse("admin:job_category", args=[job.pk, "other"])
    seen: list[int] = []
    query = "?shard=1"
    for _ in range(3):
        page = client.get(address + query)
        seen += [item.pk for item in page.context["items"]]
        query = page.context["next_page"]
    assert query == ""
    assert seen == [item.pk for item in items_of(job, "failed") if item.shard.ordinal == 1]


@pytest.mark.parametrize("shard", ["99", "x", "-1"])
@pytest.mark.parametrize("name", ["job_failures", "job_category", "job_failures_csv"])
def test_unknown_shard_is_not_found(name: str, shard: str, client: Client, job: Job) -> None:
    where = [job.pk, "other"] if name == "job_category" else [job.pk]
    assert client.get(reverse(f"admin:{name}", args=where), {"shard": shard}).status_code == 404


def test_failed_items_of_a_shards_page_lead_to_kinds_and_export(client: Client, job: Job) -> None:
    address = reverse("admin:job_shard", args=[job.pk, 1])
    html = client.get(address, {"part": "failed"}).content.decode()
    assert f'href="{reverse("admin:job_failures", args=[job.pk])}?shard=1"' in html
    assert f'href="{reverse("admin:job_failures_csv", args=[job.pk])}?shard=1"' in html
    assert "failures.csv" not in client.get(address).content.decode()


def test_failures_of_a_shard_are_read_by_its_own_index() -> None:
    """However many other failures the job has, and whatever order is wished for."""
    job = make_job(status="completed", shards=[ShardSpec(failed=3), *[ShardSpec(failed=400)] * 20])
    values = {
        "shard": job.shards.get(ordinal=1).pk, "category": "other", "code": None, "after": 0,
        "most": 51,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute("analyze batches_item")
        for name in ("failed_of_shard", "shard_failures_by_category", "shard_failures_by_code"):
            cursor.execute(f"explain (analyze, format json) {sql(name)}", values)
            told = cursor.fetchone()[0]
            plan = (json.loads(told) if isinstance(told, str) else told)[0]["Plan"]
            assert _read(plan) <= 3, name


def _read(plan: dict[str, Any]) -> float:
    """Most rows that any part of the plan looked at."""
    own = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
    return max(own, *map(_read, plan.get("Plans", [])), 0)


def test_codes_beyond_those_merged_are_said_to_be_left_out(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("batches.selectors.failures", "batches.admin.failures"):
        monkeypatch.setattr(f"{module}.MERGED", 2)
    job = make_job(status="completed", shards=[ShardSpec(failed=6)])
    for number, item in enumerate(items_of(job, "failed")):
        Item.objects.filter(pk=item.pk).update(code="abbccc"[number])
    address = reverse("admin:job_category", args=[job.pk, "other"])
    page = client.get(address)
    assert {item.code for item in page.context["items"]} == {"b", "c"}
    assert "只列出最常见的 2 个错误码" in text_of(page)
    for narrowed in ({"code": "a"}, {"shard": "1"}):
        page = client.get(address, narrowed)
        assert "a" in {item.code for item in page.context["items"]}
        assert "只列出最常见" not in text_of(page)


def test_items_of_many_codes_are_all_merged() -> None:
    job = make_job(status="completed", shards=[ShardSpec(failed=40)])
    for number, item in enumerate(items_of(job, "failed")):
        Item.objects.filter(pk=item.pk).update(code=f"code-{number}")
    codes = [row.code for row in failures_by_code(job, category="other")]
    found = failed_items(job, category="other", codes=codes)
    assert len(found.items) == 40
