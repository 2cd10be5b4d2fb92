"""失败下钻: pages by keyset, a retry that asks first, an export that can be uploaded again."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from batches.models import Item, Job
from batches.services.submissions import run_intake
from tests.factories import ShardSpec, items_of, make_account, make_job

from .pages import text_of

pytestmark = pytest.mark.django_db


def _job(failed: int = 3, **spec: Any) -> Job:
    shard = ShardSpec(failed=failed, confirmed=1, category="rate_limited", code="45009", **spec)
    return make_job(status="completed", shards=[shard])


def _rows(response: Any) -> list[list[str]]:
    body = b"".join(response.streaming_content)
    assert body.startswith(b"\xef\xbb\xbf")
    return list(csv.reader(io.StringIO(body.decode("utf-8-sig"))))


def test_categories_lead_to_codes_and_items(client: Client) -> None:
    job = _job()
    Item.objects.filter(pk=items_of(job, "failed")[0].pk).update(code=None)
    page = client.get(reverse("admin:job_failures", args=[job.pk]))
    assert [(row.category, row.count) for row in page.context["categories"]] == [
        ("rate_limited", 3)
    ]
    address = reverse("admin:job_category", args=[job.pk, "rate_limited"])
    page = client.get(address)
    assert [(row.code, row.count) for row in page.context["codes"]] == [("45009", 2), ("", 1)]
    assert len(page.context["items"]) == 3
    assert len(client.get(address, {"code": "45009"}).context["items"]) == 2
    assert len(client.get(address, {"code": ""}).context["items"]) == 1


def test_items_are_paged_without_loss_or_repetition(client: Client) -> None:
    job = _job(120)
    for number, item in enumerate(items_of(job, "failed")):
        Item.objects.filter(pk=item.pk).update(code=str(number % 3))
    address = reverse("admin:job_category", args=[job.pk, "rate_limited"])
    seen: list[int] = []
    query = ""
    for _ in range(3):
        page = client.get(address + query)
        seen += [item.pk for item in page.context["items"]]
        query = page.context["next_page"]
    assert query == ""
    assert seen == sorted({item.pk for item in items_of(job, "failed")})


def test_unknown_category_is_not_found(client: Client) -> None:
    address = reverse("admin:job_category", args=[_job().pk, "nonsense"])
    assert client.get(address).status_code == 404


def test_retry_asks_with_counts_and_then_does_it(client: Client) -> None:
    job = _job()
    address = reverse("admin:job_retry", args=[job.pk])
    asked = client.get(address, {"category": "rate_limited"})
    assert "重试 3 条" in text_of(asked)
    assert 'name="category" value="rate_limited"' in asked.content.decode()
    client.post(address, {"category": "rate_limited", "version": job.version})
    assert len(items_of(job, "pending")) == 3
    assert Job.objects.get(pk=job.pk).status == "running"


def test_retry_of_a_shard_is_offered_on_its_page_and_leaves_the_others(client: Client) -> None:
    job = make_job(
        status="completed",
        shards=[ShardSpec(failed=2, category="rate_limited"), ShardSpec(failed=3)],
    )
    page = client.get(reverse("admin:job_shard", args=[job.pk, 1])).content.decode()
    address = reverse("admin:job_retry", args=[job.pk])
    assert f'href="{address}?shard=1"' in page
    asked = client.get(address, {"shard": "1"})
    assert "重试 2 条" in text_of(asked)
    assert "分片 #1" in text_of(asked)
    assert 'name="shard" value="1"' in asked.content.decode()
    client.post(address, {"shard": "1", "version": job.version})
    assert {item.shard.ordinal for item in items_of(job, "pending")} == {1}
    assert len(items_of(job, "pending")) == 2
    assert len(items_of(job, "failed")) == 3


def test_retry_in_a_paused_job_says_that_nothing_is_sent_yet(client: Client) -> None:
    job = make_job(
        status="paused", pause_reason="operator", shards=[ShardSpec(failed=2, category="param")]
    )
    item = items_of(job, "failed")[0].pk
    address = reverse("admin:job_retry", args=[job.pk])
    done = client.post(address, {"item": [item], "version": job.version}, follow=True)
    assert "点「继续」后才会发送" in text_of(done)


def test_retry_of_ticked_rows_asks_first_and_takes_only_those(client: Client) -> None:
    job = _job()
    chosen = items_of(job, "failed")[1].pk
    address = reverse("admin:job_retry", args=[job.pk])
    asked = client.post(address, {"ask": "1", "item": [chosen], "version": job.version})
    assert asked.status_code == 200
    assert "重试 1 条" in text_of(asked)
    assert len(items_of(job, "failed")) == 3
    client.post(address, {"item": [chosen], "version": job.version})
    assert [item.pk for item in items_of(job, "pending")] == [chosen]


def test_retry_where_it_makes_no_sense_offers_no_button(client: Client) -> None:
    job = make_job(
        status="completed", shards=[ShardSpec(failed=2, confirmed=1, category="target_invalid")]
    )
    asked = client.get(reverse("admin:job_retry", args=[job.pk]))
    assert "不会重试" in text_of(asked)
    assert 'type="submit" class="btn btn-primary"' not in asked.content.decode()


def test_export_has_row_columns_category_code_and_advice(client: Client) -> None:
    job = _job(2)
    rows = _rows(client.get(reverse("admin:job_failures_csv", args=[job.pk])))
    assert rows[0] == [
        "行号", "account", "target", "name", "失败分类", "错误码", "错误信息", "建议",
    ]  # fmt: skip
    assert len(rows) == 3
    first = items_of(job, "failed")[0]
    assert rows[1][:4] == [str(first.row_no), *first.fields]
    assert rows[1][4:7] == ["触发限流", "45009", "refused"]
    assert rows[1][7]


def test_export_of_one_code_has_no_other(client: Client) -> None:
    job = _job(3)
    Item.objects.filter(pk=items_of(job, "failed")[0].pk).update(code="7")
    address = reverse("admin:job_failures_csv", args=[job.pk])
    rows = _rows(client.get(address, {"category": "rate_limited", "code": "7"}))
    assert [row[5] for row in rows[1:]] == ["7"]


def test_export_neutralises_formulas_and_protects_long_numbers(client: Client) -> None:
    job = _job(1)
    item = items_of(job, "failed")[0]
    Item.objects.filter(pk=item.pk).update(
        fields=["=1+1", "7881300000000001", "@name"], message="+cmd"
    )
    row = _rows(client.get(reverse("admin:job_failures_csv", args=[job.pk])))[1]
    assert row[1:4] == ["'=1+1", "7881300000000001\t", "'@name"]
    assert row[6] == "'+cmd"


def test_export_is_taken_in_chunks_and_complete(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batches.selectors.failures._EXPORT_CHUNK", 7)
    job = _job(40)
    rows = _rows(client.get(reverse("admin:job_failures_csv", args=[job.pk])))
    assert len({tuple(row) for row in rows[1:]}) == 40


def test_export_uploaded_again_gives_the_same_rows(client: Client) -> None:
    make_account(guid="acc-1")
    text = "账号,客户ID,姓名\nacc-1,7881300000000001,=张三\nacc-1,7881300000000002,-李四\n"

    def upload(data: bytes, **form: str) -> Job:
        client.post(
            reverse("admin:job_new"),
            {
                "action": "send_text",
                "send_text.content": "{姓名}",
                "file": SimpleUploadedFile("a.csv", data),
                **form,
            },
        )
        job = Job.objects.latest("id")
        run_intake(job.pk)
        job.refresh_from_db()
        assert job.status == "awaiting", job.intake
        return job

    first = upload(text.encode())
    before = [(item.target, item.fields) for item in items_of(first)]
    Item.objects.filter(job_id=first.pk).update(
        state="failed", category="rate_limited", code="1", settled_at="2026-01-01T00:00:00Z"
    )
    exported = client.get(reverse("admin:job_failures_csv", args=[first.pk]))
    second = upload(b"".join(exported.streaming_content))
    columns = [second.columns.index(name) for name in first.columns]
    after = [(item.target, [item.fields[i] for i in columns]) for item in items_of(second)]
    assert after == before


def test_item_page_tells_its_calls_and_what_people_did(client: Client) -> None:
    job = make_job(shards=[ShardSpec(in_doubt=1, confirmed=1)])
    item = items_of(job, "submitted")[0]
    client.post(
        reverse("admin:reconcile_mark"),
        {"item": f"{job.pk}:{item.pk}", "delivered": "0", "reason": "客户说没收到"},
    )
    shown = text_of(client.get(reverse("admin:job_item", args=[job.pk, item.pk])))
    assert "结果不明" in shown
    assert "核实为未送达" in shown
    assert "客户说没收到" in shown


def test_item_of_another_job_is_not_found(client: Client) -> None:
    job, other = _job(), _job()
    item = items_of(other)[0]
    assert client.get(reverse("admin:job_item", args=[job.pk, item.pk])).status_code == 404
