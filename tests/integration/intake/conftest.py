"""Accounts to send from, and files made on the spot."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from batches.models import Account, Job
from batches.services.submissions import Submission, run_intake, submit
from tests.factories import make_account, make_gateway

HEADER = ("账号", "客户ID", "姓名")


@pytest.fixture
def accounts() -> list[Account]:
    """guid-1 … guid-3 at one gateway."""
    gateway = make_gateway()
    return [make_account(gateway=gateway, guid=f"guid-{n}", name=f"客服{n}号") for n in range(1, 4)]


def csv_bytes(
    rows: Iterable[Sequence[object]],
    header: Sequence[str] = HEADER,
    encoding: str = "utf-8-sig",
) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue().encode(encoding)


def good_rows(count: int, accounts: int = 3) -> list[tuple[str, str, str]]:
    return [(f"guid-{n % accounts + 1}", f"{788130000 + n}", f"客户{n}") for n in range(count)]


def submission(data: bytes, **options: Any) -> Submission:
    defaults: dict[str, Any] = {
        "actor": None,
        "action": "send_text",
        "params": {"content": "您好 {name}"},
        "upload_name": "名单.csv",
        "chunks": [data],
        "enqueue": False,
    }
    return submit(**(defaults | options))


def intake(data: bytes, **options: Any) -> Job:
    """The job of a file after it was read."""
    job = submission(data, **options).job
    assert run_intake(job.pk)
    job.refresh_from_db()
    return job
