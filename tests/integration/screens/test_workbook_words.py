"""What the report calls an .xlsx file, and a text that only bears its name."""

from __future__ import annotations

import io

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from openpyxl import Workbook

from batches.models import Job
from batches.services.submissions import run_intake
from tests.factories import make_account

from .pages import text_of

pytestmark = pytest.mark.django_db
GOOD = "账号,客户ID,姓名\nacc-1,788130001,张三\n"


def _report(client: Client, name: str, data: bytes) -> tuple[Job, str]:
    make_account(guid="acc-1")
    form = {"action": "send_text", "send_text.content": "你好 {姓名}"}
    response = client.post(
        reverse("admin:job_new"), {**form, "file": SimpleUploadedFile(name, data)}
    )
    assert response.status_code == 303
    job = Job.objects.get()
    run_intake(job.pk)
    job.refresh_from_db()
    return job, text_of(client.get(reverse("admin:job", args=[job.pk])))


def _book() -> bytes:
    book = Workbook()
    sheet = book.active
    assert sheet is not None
    for line in GOOD.splitlines():
        sheet.append(line.split(","))
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def test_report_of_a_workbook_names_its_format_and_offers_no_encoding(client: Client) -> None:
    job, shown = _report(client, "名单.xlsx", _book())
    assert (job.status, job.total) == ("awaiting", 1)
    assert "格式 xlsx" in shown
    assert "编码" not in shown
    assert "纯文本" not in shown


def test_report_of_a_text_names_its_encoding(client: Client) -> None:
    _, shown = _report(client, "名单.csv", GOOD.encode())
    assert "编码 utf-8" in shown
    assert "纯文本" not in shown


@pytest.mark.parametrize("name", ["名单.xlsx", "名单.XLSX", "名单.xls"])
def test_text_named_workbook_is_read_and_said_to_be_text(name: str, client: Client) -> None:
    job, shown = _report(client, name, GOOD.encode())
    assert (job.status, job.total) == ("awaiting", 1)
    assert f"文件名以 {name[2:].lower()} 结尾，内容却是纯文本" in shown
    assert "另存为 .xlsx 或“CSV UTF-8（逗号分隔）”" in shown


def test_text_named_workbook_without_a_usable_header_is_said_to_be_text(client: Client) -> None:
    job, shown = _report(client, "名单.xlsx", b"just a note\nthat was renamed\n")
    assert job.status == "rejected"
    assert "内容却是纯文本，不是 Excel 工作簿" in shown


def test_damaged_file_named_workbook_is_refused_with_the_cure(client: Client) -> None:
    job, shown = _report(client, "名单.xlsx", _book()[:400])
    assert job.status == "rejected"
    assert "工作簿打不开" in shown
    assert "另存为 .xlsx 后重新上传" in shown
