"""A reading that dies, is raced or is given up leaves nothing half done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext

from batches.domain.errors import InvalidInputError, WrongStateError
from batches.domain.states import JobStatus
from batches.models import Event, Item, Job, Rejection, Shard
from batches.services.submissions import reread, run_intake
from batches.store import jobs as job_store
from batches.store import loading
from tests.factories import make_account

from .conftest import csv_bytes, good_rows, intake, submission

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _accounts() -> None:
    for number in range(1, 4):
        make_account(guid=f"guid-{number}")


def rows_left(job: Job) -> tuple[int, int, int]:
    return (
        Item.objects.filter(job=job).count(),
        Shard.objects.filter(job=job).count(),
        Rejection.objects.filter(job=job).count(),
    )


KILLED_READER = """
    import os, sys
    import django
    django.setup()
    from batches.store import loading
    where, job_id = sys.argv[1], int(sys.argv[2])
    def stop(*args, **kwargs):
        print("ready", flush=True)
        sys.stdin.read()
    setattr(*((loading.Stage, "take_duplicates_out", stop) if where == "staged"
              else (loading, "finish", stop)))
    from batches.services.submissions import run_intake
    run_intake(job_id)
"""


@pytest.fixture
def killed_reader() -> Iterator[Any]:
    """Reads a job's file in another process up to a point, and kills that process there."""
    running: list[subprocess.Popen[str]] = []

    def start(where: str, job: Job) -> subprocess.Popen[str]:
        values = connection.settings_dict
        socket = "&".join(
            f"{key}={value}"
            for key, value in (("host", values["HOST"]), ("port", values["PORT"]))
            if value
        )
        user = values["USER"] + (f":{values['PASSWORD']}" if values["PASSWORD"] else "")
        reader = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(KILLED_READER), where, str(job.pk)],
            env=os.environ
            | {
                "DATABASE_URL": f"postgresql://{user}@/{values['NAME']}?{socket}",
                "DJANGO_SETTINGS_MODULE": "tests.settings",
            },
            cwd=settings.BASE_DIR,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(reader)
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        return reader

    yield start
    for reader in running:
        reader.kill()
        reader.communicate()


@pytest.mark.parametrize("where", ["staged", "loaded but not committed"])
def test_reading_killed_in_the_middle_is_done_again_from_the_start(
    where: str, killed_reader: Any
) -> None:
    job = submission(csv_bytes([*good_rows(50), ("guid-9", "1", "x")]), bad_rows="skip").job
    reader = killed_reader(where, job)
    assert run_intake(job.pk) is False  # somebody reads it
    reader.send_signal(signal.SIGKILL)
    reader.wait()
    job.refresh_from_db()
    assert (job.status, job.total) == ("preparing", 0)
    assert rows_left(job) == (0, 0, 0)
    assert run_intake(job.pk, wait=True)
    job.refresh_from_db()
    assert (job.status, job.total, job.rejected_rows) == ("awaiting", 50, 1)
    assert rows_left(job) == (50, 3, 1)


def test_whatever_an_earlier_reading_left_is_taken_away_first() -> None:
    job = submission(csv_bytes(good_rows(5))).job
    left = Shard.objects.create(job=job, account=make_account(), ordinal=1, total=1, pending=1)
    Item.objects.create(job=job, shard=left, seq=1, row_no=2, target="t", state="pending")
    Rejection.objects.create(job=job, row_no=3, code="x", text="x")
    assert run_intake(job.pk)
    assert rows_left(job) == (5, 3, 0)
    assert not Item.objects.filter(shard_id=left.pk).exists()


def test_reading_done_is_not_done_again() -> None:
    job = intake(csv_bytes(good_rows(5)))
    assert run_intake(job.pk) is False
    assert run_intake(0) is False
    assert rows_left(job) == (5, 3, 0)


def test_reading_that_keeps_dying_ends_in_a_refusal() -> None:
    job = submission(csv_bytes(good_rows(5))).job
    Job.objects.filter(pk=job.pk).update(intake=job.intake | {"request": {"attempts": 5}})
    assert run_intake(job.pk)
    job.refresh_from_db()
    assert (job.status, job.intake["problem"]["code"]) == ("rejected", "intake_gave_up")


def test_job_discarded_while_it_is_loaded_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    job = submission(csv_bytes(good_rows(5))).job
    finish = loading.finish

    def discard_first(*args: Any, **columns: Any) -> None:
        connections["default"].ensure_connection()
        other = connection.copy()
        try:
            with other.cursor() as cursor:
                cursor.execute(
                    "update batches_job set status = 'cancelled' where id = %s", [job.pk]
                )
        finally:
            other.close()
        finish(*args, **columns)

    monkeypatch.setattr(loading, "finish", discard_first)
    assert run_intake(job.pk) is False
    job.refresh_from_db()
    assert job.status == "cancelled"
    assert rows_left(job) == (0, 0, 0)


def test_job_discarded_while_its_rows_are_read_ends_the_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = submission(csv_bytes(good_rows(50))).job
    monkeypatch.setattr("batches.intake.flow.PROGRESS_ROWS", 10)
    added: list[int] = []
    add = loading.Stage.add

    def discard_at_fifteen(stage: loading.Stage, row_no: int, *rest: Any) -> None:
        added.append(row_no)
        if len(added) == 15:
            Job.objects.filter(pk=job.pk).update(status="cancelled")
        add(stage, row_no, *rest)

    monkeypatch.setattr(loading.Stage, "add", discard_at_fifteen)
    assert run_intake(job.pk) is False
    assert len(added) == 20
    assert rows_left(job) == (0, 0, 0)


def test_reread_of_an_awaiting_job_replaces_what_was_loaded() -> None:
    rows = [(*row, "别名") for row in good_rows(6)]
    job = intake(csv_bytes(rows, header=("账号", "客户ID", "姓名", "昵称")))
    key = job.submission_key
    job = reread(job_id=job.pk, actor=None, mapping={"name": "昵称"}, enqueue=False)
    assert (job.status, job.total, job.columns) == ("preparing", 0, [])
    assert rows_left(job) == (0, 0, 0)
    assert run_intake(job.pk)
    job.refresh_from_db()
    assert (job.status, job.total, job.submission_key) == ("awaiting", 6, key)
    assert job.intake["samples"][0]["content"] == "您好 别名"
    assert rows_left(job) == (6, 3, 0)
    assert Event.objects.filter(job=job, kind="job.reread").exists()


def test_reread_of_a_refused_job_may_skip_its_bad_rows() -> None:
    job = intake(csv_bytes([*good_rows(3), ("guid-9", "1", "x")]))
    assert job.status == "rejected"
    reread(job_id=job.pk, actor=None, bad_rows="skip", enqueue=False)
    assert run_intake(job.pk)
    job.refresh_from_db()
    assert (job.status, job.total, job.rejected_rows) == ("awaiting", 3, 1)
    assert job.submission_key


def test_reread_with_the_right_encoding_cures_a_wrong_one() -> None:
    job = intake(csv_bytes(good_rows(3), encoding="gb18030"), encoding="utf-8")
    reread(job_id=job.pk, actor=None, encoding="", enqueue=False)
    assert run_intake(job.pk)
    job.refresh_from_db()
    assert (job.status, job.intake["encoding"]) == ("awaiting", "gb18030")


def test_reread_once_it_was_submitted_anew_points_to_the_other_job() -> None:
    data = csv_bytes([*good_rows(3), ("guid-9", "1", "x")])
    job = intake(data)
    other = intake(data, bad_rows="skip")
    with pytest.raises(WrongStateError, match=str(other.pk)):
        reread(job_id=job.pk, actor=None, bad_rows="skip", enqueue=False)
    job.refresh_from_db()
    assert job.status == "rejected"


def test_reread_without_the_file_says_that_it_is_not_there() -> None:
    job = intake(csv_bytes([*good_rows(3), ("guid-9", "1", "x")]))
    Job.objects.filter(pk=job.pk).update(upload=None)
    with pytest.raises(InvalidInputError, match="原文件已不在，请重新上传"):
        reread(job_id=job.pk, actor=None, bad_rows="skip", enqueue=False)
    job.refresh_from_db()
    assert job.status == "rejected"


def test_reread_of_a_started_job_is_refused() -> None:
    job = intake(csv_bytes(good_rows(3)))
    assert job_store.move_job(job_id=job.pk, target=JobStatus.RUNNING)
    with (
        CaptureQueriesContext(connection) as asked,
        pytest.raises(WrongStateError, match="运行中"),
    ):
        reread(job_id=job.pk, actor=None, enqueue=False)
    assert rows_left(job) == (3, 3, 0)
    # not even for a moment: the rows of a running job are what its lanes wait for
    assert not any("delete from" in query["sql"].lower() for query in asked)
