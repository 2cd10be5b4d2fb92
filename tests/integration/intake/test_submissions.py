"""One submission, one job."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import LazySettings
from django.db import connection

from batches.domain.errors import InvalidInputError, NotAllowedError
from batches.domain.problems import Problem
from batches.models import Event, Job, Upload, UploadChunk
from batches.services import submissions
from batches.services.submissions import Submission, run_intake
from tests.factories import make_account, make_user

from .conftest import csv_bytes, good_rows, intake, submission

DATA = csv_bytes(good_rows(6))


def codes(**options: Any) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        submission(DATA, **options)
    assert not Job.objects.exists()
    assert not Upload.objects.exists()
    assert str(caught.value)
    return [p.code for p in caught.value.problems if isinstance(p, Problem)]


@pytest.mark.django_db
class TestSubmit:
    def test_stores_the_file_in_chunks_whatever_the_pieces(self) -> None:
        data = bytes(range(1, 256)) * 10_000
        pieces = [data[:7], data[7:1_500_000], b"", data[1_500_000:]]
        upload = submission(b"", chunks=pieces).job.upload
        assert upload is not None
        chunks = UploadChunk.objects.filter(upload=upload).order_by("number")
        assert [len(chunk.data) for chunk in chunks] == [1 << 20, 1 << 20, len(data) - (2 << 20)]
        assert b"".join(bytes(chunk.data) for chunk in chunks) == data
        assert (upload.size, upload.sha256) == (len(data), hashlib.sha256(data).hexdigest())

    def test_makes_a_preparing_job_and_asks_for_its_reading_after_the_commit(
        self, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
    ) -> None:
        asked: list[int] = []
        monkeypatch.setattr("batches.queue.enqueue_intake", asked.append)
        actor = make_user("operate_job")
        with django_capture_on_commit_callbacks(execute=True):
            made = submission(DATA, actor=actor, enqueue=True, stages=(2, 4), budget_limit=5)
            assert asked == []
        assert asked == [made.job.pk]
        job = made.job
        assert (made.created, job.status, job.created_by) == (True, "preparing", actor)
        assert (job.stages, job.budget_limit, job.bad_rows) == ([2, 4], 5, "refuse")
        assert job.intake["phase"] == "waiting"
        assert Event.objects.get(job=job).kind == "job.created"

    def test_name_is_made_of_action_date_and_file(self) -> None:
        job = submission(DATA, upload_name="C:\\名单\\五月.csv").job
        assert job.name.startswith("发送文本消息 20")
        assert job.name.endswith(" 五月")
        assert job.upload is not None
        assert job.upload.name == "五月.csv"
        assert submission(DATA, name=" 我的\n作业 ", rerun_reason="x").job.name == "我的 作业"

    def test_same_submission_gives_the_same_job_and_stores_nothing_more(self) -> None:
        first, again = submission(DATA), submission(DATA, name="别名", upload_name="b.csv")
        assert (again.job.pk, again.created) == (first.job.pk, False)
        assert Upload.objects.count() == 1

    @pytest.mark.parametrize(
        "options",
        [
            {"params": {"content": "再见 {name}"}},
            {"chunks": [DATA, b"\r\n"]},
            {"mapping": {"name": "姓名"}},
            {"rerun_reason": "客户要求补发"},
            {"idempotency_key": "k"},
        ],
    )
    def test_another_submission_gives_another_job(self, options: dict[str, Any]) -> None:
        first = submission(DATA)
        second = submission(DATA, **options)
        assert second.created
        assert second.job.pk != first.job.pk

    @pytest.mark.parametrize(
        "limits", [{"budget_limit": 3}, {"stages": (2,)}, {"rate_limit_per_min": 9}]
    )
    def test_same_file_and_words_under_other_limits_are_the_same_submission(
        self, limits: dict[str, Any]
    ) -> None:
        """Whoever uploads again with another rate would write to the same people twice."""
        first = submission(DATA)
        again = submission(DATA, **limits)
        assert (again.job.pk, again.created) == (first.job.pk, False)

    def test_same_rerun_reason_gives_the_same_rerun(self) -> None:
        submission(DATA)
        first, again = (submission(DATA, rerun_reason="客户要求补发") for _ in range(2))
        assert (again.job.pk, again.created) == (first.job.pk, False)
        assert first.job.rerun_reason == "客户要求补发"

    def test_same_idempotency_key_gives_the_same_job_without_looking_at_the_file(self) -> None:
        first = submission(DATA, idempotency_key="k1")

        def unread() -> Iterator[bytes]:
            raise AssertionError("read")
            yield b""

        again = submission(b"", idempotency_key="k1", chunks=unread())
        assert (again.job.pk, again.created) == (first.job.pk, False)

    def test_file_too_large_is_refused_while_it_comes_in(self, settings: LazySettings) -> None:
        settings.UPLOAD_MAX_BYTES = 3 << 20
        sent: list[int] = []

        def endless() -> Iterator[bytes]:
            while True:
                sent.append(1)
                yield b"x" * (1 << 20)

        with pytest.raises(InvalidInputError, match="3 MB"):
            submission(b"", chunks=endless())
        assert len(sent) == 4
        assert not Upload.objects.exists()

    def test_empty_file_is_refused_at_once(self) -> None:
        assert codes(chunks=[b""]) == ["file_empty"]

    def test_every_fault_of_the_parameters_is_listed(self) -> None:
        assert codes(
            params={"content": "{", "x": "1"},
            budget_limit=0,
            stages=(5, 5),
            rate_limit_per_min=0,
            confirm_policy="callback",
            bad_rows="ignore",
            name="长" * 201,
        ) == [
            "param_unknown",
            "budget_range",
            "stages_order",
            "rate_range",
            "confirm_policy_unsupported",
            "bad_rows_unknown",
            "name_too_long",
        ]

    @pytest.mark.parametrize(
        ("options", "code"),
        [
            ({"action": "send_fax"}, "action_unknown"),
            ({"params": {}}, "param_empty"),
            ({"params": {"content": "{name"}}, "template_brace_unbalanced"),
            ({"stages": (0, 5)}, "stages_order"),
            ({"stages": (5, 3)}, "stages_order"),
            ({"budget_limit": 1 << 40}, "budget_range"),
            ({"encoding": "latin-1"}, "encoding_unknown"),
            ({"rerun_reason": "长" * 301}, "reason_too_long"),
        ],
    )
    def test_what_cannot_be_is_refused(self, options: dict[str, Any], code: str) -> None:
        assert codes(**options) == [code]

    def test_person_without_the_permission_is_refused(self) -> None:
        with pytest.raises(NotAllowedError):
            submission(DATA, actor=make_user())


@pytest.mark.django_db
@pytest.mark.usefixtures("accounts")
def test_refused_file_may_be_submitted_again_and_gives_a_new_job() -> None:
    bad = csv_bytes([*good_rows(3), ("guid-9", "1", "x")])
    refused = intake(bad)
    second = submission(bad, bad_rows="skip")
    assert second.created
    assert second.job.pk != refused.pk


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("key", [None, "double-click"])
def test_submission_from_several_connections_at_once_makes_one_job(key: str | None) -> None:
    make_account(guid="guid-1")
    barrier = threading.Barrier(4, timeout=30)
    made: list[Submission] = []
    failed: list[BaseException] = []

    def chunks() -> Iterator[bytes]:
        barrier.wait()  # all of them are past the look for an existing job
        yield DATA

    def click() -> None:
        try:
            made.append(submission(b"", chunks=chunks(), idempotency_key=key))
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failed.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=click) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert sorted(one.created for one in made) == [False, False, False, True]
    assert len({one.job.pk for one in made}) == 1
    assert Job.objects.count() == Upload.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_reading_from_several_connections_at_once_happens_once() -> None:
    for number in range(1, 4):
        make_account(guid=f"guid-{number}")
    job = submission(csv_bytes(good_rows(200))).job
    done: list[bool] = []

    def read() -> None:
        try:
            done.append(run_intake(job.pk, wait=True))
        finally:
            connection.close()

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(done) == [False, False, True]
    job.refresh_from_db()
    assert (job.status, job.total) == ("awaiting", 200)


@pytest.mark.django_db(transaction=True)
def test_key_given_up_while_a_second_click_waits_makes_a_new_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = submission(DATA)
    looked: list[str] = []
    real = submissions._job_of

    def gone_once(key: str) -> Job | None:
        looked.append(key)
        if len(looked) == 1:
            Job.objects.filter(pk=first.job.pk).update(status="rejected", submission_key=None)
            return None
        return real(key)

    monkeypatch.setattr(submissions, "_job_of", gone_once)
    second = submission(DATA)
    assert second.created
    assert Job.objects.count() == 2
