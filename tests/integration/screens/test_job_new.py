"""新建作业 to the confirmed start: the form, the report, corrections, the preview."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from batches.admin.job_report import ENCODINGS
from batches.intake.decoding import encoding_named
from batches.models import Account, Event, Job, Upload
from batches.services.submissions import run_intake
from tests.factories import make_account

from .pages import faults_of, text_of

pytestmark = pytest.mark.django_db
HEADER = "账号,客户ID,姓名\n"
GOOD = HEADER + "acc-1,788130001,张三\nacc-1,788130002,李四\n"


@pytest.fixture(autouse=True)
def account(db: None) -> Account:
    return make_account(guid="acc-1", name="客服甲")


def _post(client: Client, text: str | bytes = GOOD, **form: str) -> Any:
    data = text if isinstance(text, bytes) else text.encode()
    fields: dict[str, Any] = {"action": "send_text", "send_text.content": "你好 {姓名}"}
    fields |= form
    if data:
        fields["file"] = SimpleUploadedFile("名单.csv", data)
    return client.post(reverse("admin:job_new"), fields)


def _read(response: Any) -> Job:
    """The job that the form led to, its file read as a worker would."""
    assert response.status_code == 303, text_of(response)
    job = Job.objects.latest("id")
    assert response.headers["Location"] == reverse("admin:job", args=[job.pk])
    run_intake(job.pk)
    job.refresh_from_db()
    return job


def _page(client: Client, job: Job) -> Any:
    response = client.get(reverse("admin:job", args=[job.pk]))
    assert response.status_code == 200
    assert faults_of(response.content.decode()) == []
    return response


def test_form_filled_in_makes_a_job_with_its_limits(client: Client) -> None:
    job = _read(
        _post(client, name="十二月", budget="1,000", stages="50，500", rate="30", bad_rows="skip")
    )
    assert (job.name, job.status, job.total) == ("十二月", "awaiting", 2)
    assert (job.budget_limit, job.stages, job.rate_limit_per_min) == (1000, [50, 500], 30)
    assert job.params == {"content": "你好 {姓名}"}
    assert job.bad_rows == "skip"


def test_same_form_twice_leads_to_the_same_job(client: Client) -> None:
    first, second = _post(client), _post(client)
    assert first.headers["Location"] == second.headers["Location"]
    assert Job.objects.count() == Upload.objects.count() == 1
    shown = text_of(client.get(second.headers["Location"]))
    assert "已经提交过" in shown


def test_same_form_with_a_reason_runs_again(client: Client) -> None:
    _post(client)
    _post(client, rerun_reason="客户要求再发")
    assert Job.objects.count() == 2


def test_line_ends_of_a_browser_become_single_characters(client: Client) -> None:
    _post(client, **{"send_text.content": "一\r\n二"})
    assert Job.objects.get().params["content"] == "一\n二"


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"send_text.content": " "}, "请填写参数"),
        ({"send_text.content": "你好 {姓名"}, "大括号不成对"),
        ({"budget": "很多"}, "请填整数"),
        ({"rate": "-1"}, "请填正整数"),
        ({"stages": "五十"}, "放量检查点请填"),
        ({"stages": "500,50"}, "从小到大"),
        ({"action": "nothing"}, "不认识的动作"),
        ({"bad_rows": "eat"}, "问题行的处理方式"),
    ],
)
def test_form_with_a_fault_says_what_and_keeps_what_was_typed(
    form: dict[str, str], words: str, client: Client
) -> None:
    response = _post(client, **({"name": "别丢了我"} | form))
    assert response.status_code == 422
    assert words in text_of(response)
    assert "别丢了我" in response.content.decode()
    assert faults_of(response.content.decode()) == []
    assert not Job.objects.exists()
    assert not Upload.objects.exists()


def test_form_without_a_file_asks_for_one(client: Client) -> None:
    response = _post(client, b"")
    assert response.status_code == 422
    assert "请选择要上传的文件" in text_of(response)


def test_file_above_the_limit_is_refused(client: Client, settings: Any) -> None:
    settings.UPLOAD_MAX_BYTES = 1024 * 1024
    response = _post(client, GOOD.encode() + b"x" * 1024 * 1024)
    assert response.status_code == 422
    assert "上限" in text_of(response)
    assert not Upload.objects.exists()


def test_preview_shows_rendered_samples_split_and_the_number_on_the_button(client: Client) -> None:
    job = _read(_post(client, budget="10", stages="1"))
    shown = text_of(_page(client, job))
    assert "你好 张三" in shown
    assert "客服甲" in shown
    assert "2 条，1 个账号，1 个分片" in shown
    assert "最多 10 条" in shown
    assert "确认并启动 2 条" in shown


def test_confirm_starts_the_job(client: Client) -> None:
    job = _read(_post(client))
    response = client.post(reverse("admin:job_confirm", args=[job.pk]), {"version": job.version})
    assert response.status_code == 303
    job.refresh_from_db()
    assert job.status == "running"
    assert Event.objects.filter(job=job, kind="job.confirmed").exists()


def test_discard_gives_the_submission_back(client: Client) -> None:
    job = _read(_post(client))
    client.post(
        reverse("admin:job_cancel", args=[job.pk]), {"version": job.version, "reason": "传错了"}
    )
    _read(_post(client))
    assert Job.objects.count() == 2


def test_refused_file_shows_the_report_with_row_column_value_and_cure(client: Client) -> None:
    job = _read(_post(client, GOOD + "acc-1,7.88E+15,王五\nacc-1,788130001,张三\n"))
    assert job.status == "rejected"
    shown = text_of(_page(client, job))
    assert "科学计数法" in shown
    assert "7.88E+15" in shown
    assert "重复" in shown
    assert "改正后重新上传" in shown
    assert reverse("admin:job_rejections", args=[job.pk]) in _page(client, job).content.decode()


def test_bad_rows_downloaded_are_safe_for_a_spreadsheet_and_whole(client: Client) -> None:
    job = _read(
        _post(
            client, HEADER + 'acc-1,788130001,ok\n,788130002,"=HYPERLINK(""x"")"\n', bad_rows="skip"
        )
    )
    response = client.get(reverse("admin:job_rejections", args=[job.pk]))
    body = b"".join(response.streaming_content)
    assert body.startswith(b"\xef\xbb\xbf")
    rows = list(csv.reader(io.StringIO(body.decode("utf-8-sig"))))
    assert rows[0][:4] == ["行号", "账号", "客户ID", "姓名"]
    assert rows[1][:4] == ["3", "", "788130002", '\'=HYPERLINK("x")']
    assert len(rows) == 2


def test_refused_file_read_again_skipping_bad_rows_is_accepted(client: Client) -> None:
    job = _read(_post(client, GOOD + "acc-1,,王五\n"))
    assert job.status == "rejected"
    response = client.post(
        reverse("admin:job_reread", args=[job.pk]),
        {"encoding": "", "bad_rows": "skip", "version": job.version},
    )
    assert response.status_code == 303
    run_intake(job.pk)
    job.refresh_from_db()
    assert (job.status, job.total, job.rejected_rows) == ("awaiting", 2, 1)


def test_columns_not_recognised_are_chosen_from_the_files_own(client: Client) -> None:
    job = _read(_post(client, "谁来发,发给谁,姓名\nacc-1,788130001,张三\n"))
    assert job.status == "rejected"
    page = _page(client, job)
    assert "谁来发" in page.content.decode()
    response = client.post(
        reverse("admin:job_reread", args=[job.pk]),
        {
            "columns": "1",
            "column-account": "0",
            "column-target": "1",
            "column-name": "2",
            "encoding": "",
            "bad_rows": "refuse",
            "version": job.version,
        },
    )
    assert response.status_code == 303
    run_intake(job.pk)
    job.refresh_from_db()
    assert (job.status, job.total) == ("awaiting", 1)


def test_every_encoding_on_offer_can_be_chosen() -> None:
    assert all(encoding_named(name) == name for name in ENCODINGS)


def test_encoding_named_by_the_operator_is_used(client: Client) -> None:
    job = _read(_post(client, GOOD.encode("gb18030"), bad_rows="skip"))
    assert job.intake["encoding"] == "gb18030"
    form = {"encoding": "utf-8", "version": job.version}
    client.post(reverse("admin:job_reread", args=[job.pk]), form)
    run_intake(job.pk)
    job.refresh_from_db()
    assert job.status == "rejected"


def test_started_job_cannot_be_read_again(client: Client) -> None:
    job = _read(_post(client))
    client.post(reverse("admin:job_confirm", args=[job.pk]), {"version": job.version})
    job.refresh_from_db()
    form = {"encoding": "", "version": job.version}
    response = client.post(reverse("admin:job_reread", args=[job.pk]), form)
    assert response.status_code == 409
    assert "不能重新读取文件" in text_of(response)


def test_reading_again_from_a_stale_page_is_refused_and_keeps_what_was_read(client: Client) -> None:
    job = _read(_post(client))
    assert f'name="version" value="{job.version}"' in _page(client, job).content.decode()
    Job.objects.filter(pk=job.pk).update(version=job.version + 1)
    form = {"encoding": "", "version": job.version}
    response = client.post(reverse("admin:job_reread", args=[job.pk]), form)
    assert response.status_code == 409
    assert "状态已被他人更改" in text_of(response)
    fresh = Job.objects.get(pk=job.pk)
    assert (fresh.status, fresh.total) == ("awaiting", job.total)


def test_form_is_for_operators(sign_in: Any) -> None:
    viewer = sign_in()
    assert viewer.get(reverse("admin:job_new")).status_code == 403
    assert _post(viewer).status_code == 403
    assert not Job.objects.exists()


def test_tags_are_made_from_their_own_fields(client: Client) -> None:
    job = _read(
        _post(
            client,
            "账号,客户ID\nacc-1,788130001\n",
            action="tag_customers",
            **{"tag_customers.mode": "remove", "tag_customers.tags": "101"},
        )
    )
    assert job.params == {"mode": "remove", "tags": "101"}
    assert "移除标签" in text_of(_page(client, job))
