"""manage.py create_job."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from openpyxl import Workbook

from batches.models import Account, Item, Job, Rejection

from .conftest import HEADER, csv_bytes, good_rows

EXAMPLES = settings.BASE_DIR / "examples"


def run(*args: object) -> tuple[Any, str, int]:
    """(JSON, stderr, exit code) of create_job."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    try:
        call_command("create_job", *map(str, args), "--json", stdout=out, stderr=err)
    except SystemExit as stop:
        code = int(str(stop.code))
    return json.loads(out.getvalue() or "null"), err.getvalue(), code


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "名单.csv"
    path.write_bytes(csv_bytes(good_rows(9)))
    return path


def create(file: Path, *args: object) -> tuple[Any, str, int]:
    return run("--action", "send_text", "--csv", file, "--param", "content=您好 {name}=", *args)


@pytest.mark.django_db
@pytest.mark.usefixtures("accounts")
class TestCreateJob:
    def test_prints_the_report_of_the_job_it_made(self, file: Path) -> None:
        limits = ("--budget", 8, "--stages", "2,4", "--rate", 30, "--name", "五月回访")
        report, _, code = create(file, *limits)
        assert code == 0
        assert (report["name"], report["status"], report["created"]) == (
            "五月回访",
            "awaiting",
            True,
        )
        assert report["items"]["total"] == report["items"]["pending"] == 9
        assert (report["rejected_rows"], report["budget"]) == (0, {"limit": 8, "used": 0})
        assert report["rate"]["limit_per_min"] == 30
        assert [shard["items"]["total"] for shard in report["shards"]] == [3, 3, 3]
        job = Job.objects.get(pk=report["id"])
        assert (job.stages, job.params) == ([2, 4], {"content": "您好 {name}="})

    def test_same_again_is_already_there(self, file: Path) -> None:
        first, _, _ = create(file, "--idempotency-key", "k")
        again, _, code = create(file, "--idempotency-key", "k")
        assert (code, again["id"], again["created"]) == (0, first["id"], False)
        assert Item.objects.count() == 9

    def test_start_confirms_it(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        report, _, code = create(file, "--start")
        assert (code, report["status"]) == (0, "running")
        again, _, code = create(file, "--start")
        assert (code, again["id"], again["status"]) == (0, report["id"], "running")

    def test_bad_rows_are_refused_with_the_reasons(self, tmp_path: Path) -> None:
        file = tmp_path / "a.csv"
        rows = [*good_rows(2), ("guid-9", "1", "x"), ("guid-1", "7E+15", "x")]
        file.write_bytes(csv_bytes(rows))
        told, err, code = create(file)
        assert (code, told["status"], told["rows"], told["bad_rows"]) == (2, "rejected", 4, 2)
        assert [problem["code"] for problem in told["problems"]] == [
            "rows_bad",
            "account_unknown",
            "value_scientific",
        ]
        assert told["error"] in err
        assert "例如第 4 行" in err
        assert Job.objects.get(pk=told["id"]).status == "rejected"
        assert Rejection.objects.filter(job_id=told["id"]).count() == 2

    def test_bad_rows_are_skipped_on_request(self, tmp_path: Path) -> None:
        file = tmp_path / "a.csv"
        file.write_bytes(csv_bytes([*good_rows(2), ("guid-9", "1", "x")]))
        report, _, code = create(file, "--bad-rows", "skip")
        assert (code, report["items"]["total"], report["rejected_rows"]) == (0, 2, 1)

    def test_workbook_is_taken_too(self, tmp_path: Path) -> None:
        book = Workbook()
        sheet = book.active
        assert sheet is not None
        for row in (
            HEADER,
            *good_rows(3),
            ("guid-1", 788130000977, "数字"),
            ("guid-1", 7881300000000977, "坏"),
        ):
            sheet.append(row)
        book.save(tmp_path / "名单.xlsx")
        report, _, code = create(tmp_path / "名单.xlsx", "--bad-rows", "skip")
        assert (code, report["items"]["total"], report["rejected_rows"]) == (0, 4, 1)
        assert Item.objects.filter(target="788130000977").exists()

    @pytest.mark.parametrize(
        ("args", "word"),
        [
            (("--budget", 0), "预算"),
            (("--stages", "50,20"), "从小到大"),
            (("--confirm-policy", "callback"), "暂不支持"),
        ],
    )
    def test_what_cannot_be_is_refused(self, file: Path, args: Any, word: str) -> None:
        told, err, code = create(file, *args)
        assert code == 2
        assert word in err
        assert word in told["error"]
        assert not Job.objects.exists()

    def test_file_that_is_not_there_is_refused(self, tmp_path: Path) -> None:
        told, _, code = create(tmp_path / "missing.csv")
        assert (code, told["problems"][0]["code"]) == (2, "file_unreadable")

    def test_arguments_that_cannot_be_read_are_refused(self, file: Path) -> None:
        with pytest.raises(CommandError, match="名称=值"):
            run("--action", "send_text", "--csv", file, "--param", "content")
        with pytest.raises(CommandError, match="50,500"):
            create(file, "--stages", "many")

    def test_without_json_a_person_is_told(self, file: Path) -> None:
        out = io.StringIO()
        arguments = ("--action", "send_text", "--csv", str(file), "--param", "content=您好")
        call_command("create_job", *arguments, stdout=out)
        assert "已创建，待确认，9 条，0 行未导入" in out.getvalue()
        call_command("create_job", *arguments, stdout=out)
        assert "已经存在" in out.getvalue()


@pytest.mark.django_db
class TestExamples:
    def test_sample_files_fit_together(self) -> None:
        call_command("load_accounts", str(EXAMPLES / "accounts.csv"), stdout=io.StringIO())
        assert Account.objects.filter(total_rate_per_min=600).count() == 20
        report, _, code = create(EXAMPLES / "customers.csv")
        assert (code, report["items"]["total"], report["rejected_rows"]) == (0, 200, 0)
        told, _, code = create(EXAMPLES / "customers_damaged.csv")
        assert code == 2
        assert {problem["code"] for problem in told["problems"]} == {
            "rows_bad",
            "value_scientific",
            "duplicate",
            "account_unknown",
            "placeholder_empty",
            "row_too_many_cells",
        }
        report, _, code = create(EXAMPLES / "customers_damaged.csv", "--bad-rows", "skip")
        assert code == 0
        assert report["items"]["total"] + report["rejected_rows"] == 40

    def test_generator_makes_the_files_that_are_kept(self, tmp_path: Path) -> None:
        script = tmp_path / "make_examples.py"
        script.write_bytes((EXAMPLES / "make_examples.py").read_bytes())
        subprocess.run([sys.executable, str(script)], check=True)
        for made in tmp_path.glob("*.csv"):
            kept = (EXAMPLES / made.name).read_bytes()
            assert made.read_bytes().replace(b"\r\n", b"\n") == kept.replace(b"\r\n", b"\n")
        assert len(list(tmp_path.glob("*.csv"))) == 3


@pytest.mark.django_db
@pytest.mark.usefixtures("accounts")
class TestBytesThatAreNoUtf8:
    def test_in_a_file_name_they_are_replaced(self, file: Path) -> None:
        odd = file.with_name("\udcc3\udcfb.csv")  # GBK, as from another system's archive
        file.rename(odd)
        report, _, code = run("--action", "send_text", "--csv", odd, "--param", "content=您好")
        assert (code, report["items"]["total"]) == (0, 9)
        assert "\ufffd" in Job.objects.get().upload.name

    @pytest.mark.parametrize(
        "words",
        [
            ("--param", "content=\udcff"),
            ("--param", "content=x", "--name", "a\udcff"),
            ("--param", "content=x", "--rerun-reason", "a\udcff"),
        ],
    )
    def test_in_a_text_they_are_refused(self, file: Path, words: tuple[str, ...]) -> None:
        said, err, code = run("--action", "send_text", "--csv", file, *words)
        assert code == 2
        assert "不是 UTF-8" in err
        assert said["problems"][0]["code"] == "text_not_utf8"
        assert not Job.objects.exists()
