"""From the stored file to items, shards and rejections."""

from __future__ import annotations

import codecs
from typing import Any

import pytest
from django.conf import LazySettings
from django.db.models import Count, Max, Min

from batches.intake.report import problem_from_json
from batches.models import Account, Event, Item, Job, Rejection, Shard
from batches.store import loading

from .conftest import HEADER, csv_bytes, good_rows, intake

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("accounts")]


def items(job: Job) -> Any:
    return Item.objects.filter(job=job)


def test_good_file_becomes_an_awaiting_job() -> None:
    job = intake(csv_bytes(good_rows(30)))
    assert (job.status, job.total, job.rejected_rows) == ("awaiting", 30, 0)
    assert job.columns == list(HEADER)
    assert job.mapping == {"account": 0, "target": 1, "name": 2}
    first = items(job).get(row_no=2)
    assert first.fields == ["guid-1", "788130000", "客户0"]
    assert (first.state, first.attempt, first.call_id) == ("pending", 0, None)
    assert Event.objects.filter(job=job).values_list("kind", flat=True).last() == "job.loaded"


def test_report_tells_what_was_found() -> None:
    report = intake(csv_bytes(good_rows(30), encoding="gb18030")).intake
    assert report["phase"] == "done"
    assert (report["encoding"], report["delimiter"], report["header_row"]) == ("gb18030", ",", 1)
    assert (report["rows"], report["items"], report["valid"], report["rejected"]) == (30, 30, 30, 0)
    assert report["accounts"][0] == {
        "account": "guid-1",
        "name": "客服1号",
        "items": 10,
        "shards": 1,
    }
    assert (report["accounts_total"], report["shards"]) == (3, 3)
    assert report["samples"][0]["content"] == "您好 客户0"
    assert (report["problem"], report["by_reason"], report["warnings"]) == (None, [], [])
    assert report["duration_s"] >= 0


def test_shards_are_numbered_by_account_and_items_by_row() -> None:
    job = intake(csv_bytes(good_rows(31)))
    shards = list(Shard.objects.filter(job=job).order_by("ordinal"))
    assert [shard.ordinal for shard in shards] == [1, 2, 3]
    assert [shard.account.guid for shard in shards] == ["guid-1", "guid-2", "guid-3"]
    assert [shard.total for shard in shards] == [11, 10, 10]
    for shard in shards:
        assert (shard.pending, shard.status, shard.cursor) == (shard.total, "pending", 0)
        numbered = list(items(job).filter(shard=shard).order_by("seq").values_list("seq", "row_no"))
        assert [seq for seq, _ in numbered] == list(range(1, shard.total + 1))
        assert [row for _, row in numbered] == sorted(row for _, row in numbered)


def test_large_account_is_sliced_by_target_and_no_slice_is_empty(settings: LazySettings) -> None:
    settings.SHARD_SLICE_SIZE = 7
    rows = [*good_rows(50, accounts=1), ("guid-2", "1", "x")]
    job, again = intake(csv_bytes(rows)), intake(csv_bytes(rows), rerun_reason="补发")
    shards = Shard.objects.filter(job=job).order_by("ordinal")
    assert 2 <= shards.filter(account__guid="guid-1").count() <= 8
    assert shards.filter(account__guid="guid-2").count() == 1
    assert [shard.ordinal for shard in shards] == list(range(1, len(shards) + 1))
    counted = items(job).values("shard").annotate(n=Count("id"), low=Min("seq"), high=Max("seq"))
    assert {row["shard"]: row["n"] for row in counted} == {s.pk: s.total for s in shards}
    assert all((row["low"], row["high"]) == (1, row["n"]) for row in counted)

    def placed(job: Job) -> list[Any]:
        return sorted(items(job).values_list("shard__ordinal", "seq", "target"))

    assert placed(job) == placed(again)


@pytest.mark.parametrize("size", [1, 2])
def test_tiniest_slices_hold_every_item(settings: LazySettings, size: int) -> None:
    settings.SHARD_SLICE_SIZE = size
    job = intake(csv_bytes(good_rows(20, accounts=1)))
    shards = Shard.objects.filter(job=job)
    assert all(shard.total > 0 for shard in shards)
    assert sum(shard.total for shard in shards) == items(job).count() == job.total == 20


BAD_ROWS = [
    ("guid-1", "100", "一"),
    ("guid-1", "7.88130E+15", "二"),
    ("guid-9", "101", "三"),
    ("guid-1", "100", "重复"),
    ("guid-2", "100", "别的账号"),
    ("", "", ""),
    ("guid-1", "102", ""),
    ("guid-1", "１００", "全角重复"),
    ("guid-1", "103\t", "好"),
]


def test_bad_rows_refuse_the_file_and_are_all_listed() -> None:
    job = intake(csv_bytes(BAD_ROWS))
    assert (job.status, job.total) == ("rejected", 0)
    assert not items(job).exists()
    assert not Shard.objects.filter(job=job).exists()
    assert job.submission_key is None
    report = job.intake
    assert (report["rows"], report["items"], report["rejected"]) == (8, 0, 5)
    assert job.rejected_rows == 8  # rows in = items + rejected rows
    assert report["problem"]["code"] == "rows_bad"
    assert {r["code"]: (r["count"], r["example_row"]) for r in report["by_reason"]} == {
        "value_scientific": (1, 3),
        "account_unknown": (1, 4),
        "duplicate": (2, 5),
        "placeholder_empty": (1, 8),
    }
    assert Rejection.objects.filter(job=job).count() == 5


def test_bad_rows_that_are_skipped_leave_the_good_ones() -> None:
    job = intake(csv_bytes(BAD_ROWS), bad_rows="skip")
    assert (job.status, job.total, job.rejected_rows) == ("awaiting", 3, 5)
    assert sorted(items(job).values_list("row_no", "target")) == [
        (2, "100"),
        (6, "100"),
        (10, "103"),
    ]
    assert job.intake["rows"] == job.total + job.rejected_rows


def test_rejection_says_where_what_and_the_cure() -> None:
    job = intake(csv_bytes(BAD_ROWS), bad_rows="skip")
    found = {r.row_no: r for r in Rejection.objects.filter(job=job)}
    assert sorted(found) == [3, 4, 5, 8, 9]
    assert (found[3].column, found[3].value) == ("客户ID", "7.88130E+15")
    assert found[3].fields == ["guid-1", "7.88130E+15", "二"]
    repeated = found[9]
    problem = problem_from_json(
        {"code": repeated.code, "text": repeated.text, "params": repeated.params}
    )
    assert "第 2 行" in str(problem)
    assert (repeated.code, repeated.fields) == ("duplicate", ["guid-1", "100", "全角重复"])


def test_duplicate_of_a_bad_row_is_no_duplicate() -> None:
    rows = [("guid-1", "1", ""), ("guid-1", "1", "好")]
    job = intake(csv_bytes(rows), bad_rows="skip")
    assert (job.total, job.rejected_rows) == (1, 1)
    assert items(job).get().row_no == 3


FILE_PROBLEMS = [
    (b"%PDF-1.7", "file_not_csv"),
    (b"\0\1\2" * 10, "file_binary"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "file_old_excel"),
    (b"\r\n \r\n,,\r\n", "file_blank"),
    (csv_bytes([]), "file_header_only"),
    (csv_bytes([("", " ", "")]), "file_header_only"),
    (csv_bytes(good_rows(1), header=("手机", "客户ID", "姓名")), "column_missing"),
    (csv_bytes(good_rows(1), header=("账号", "手机", "姓名")), "column_missing"),
    (csv_bytes(good_rows(1), header=("账号", "客户ID", "昵称x")), "template_placeholder_unknown"),
    (csv_bytes([("guid-9", "1", "a"), ("guid-1", "", "b")]), "rows_all_bad"),
    (csv_bytes(good_rows(1)) + b'guid-1,"2,x\r\n', "csv_quote_open"),
    (csv_bytes(good_rows(40)) + b"guid-1,\xff\xff,x\r\n", "encoding_damaged"),
]


@pytest.mark.parametrize(("data", "code"), FILE_PROBLEMS, ids=[code for _, code in FILE_PROBLEMS])
@pytest.mark.parametrize("bad_rows", ["refuse", "skip"])
def test_file_that_cannot_be_used_is_refused_with_the_cure(
    data: bytes, code: str, bad_rows: str
) -> None:
    job = intake(data, bad_rows=bad_rows)
    assert job.status == "rejected"
    assert job.intake["problem"]["code"] == code
    sentence = str(problem_from_json(job.intake["problem"]))
    assert any(word in sentence for word in ("请", "可以是"))
    assert (job.total, job.submission_key) == (0, None)
    assert not items(job).exists()
    assert Event.objects.filter(job=job, kind="job.rejected").exists()


def test_encoding_that_was_chosen_wrongly_is_refused() -> None:
    job = intake(csv_bytes(good_rows(3), encoding="gb18030"), encoding="utf-8")
    assert job.intake["problem"]["code"] == "encoding_override_wrong"


@pytest.mark.parametrize(
    ("data", "delimiter", "encoding"),
    [
        (csv_bytes(good_rows(5), encoding="gb18030"), ",", "gb18030"),
        (
            codecs.BOM_UTF16_LE
            + csv_bytes(good_rows(5), encoding="utf-8")
            .replace(b",", b"\t")
            .decode()
            .encode("utf-16-le"),
            "\t",
            "utf-16-le",
        ),
        (csv_bytes(good_rows(5)).replace(b",", b";").replace(b"\r\n", b"\r"), ";", "utf-8"),
        ("五月名单,,\n\n".encode() + csv_bytes(good_rows(5), encoding="utf-8"), ",", "utf-8"),
    ],
    ids=["gb18030", "utf-16 with tabs", "semicolons and CR", "title rows"],
)
def test_file_of_any_make_gives_the_same_items(data: bytes, delimiter: str, encoding: str) -> None:
    job = intake(data)
    assert job.status == "awaiting", job.intake["problem"]
    assert (job.intake["delimiter"], job.intake["encoding"]) == (delimiter, encoding)
    assert [item.fields for item in items(job).order_by("row_no")] == [
        list(row) for row in good_rows(5)
    ]


def test_cells_with_everything_in_them_arrive_unchanged() -> None:
    name = '引号"，逗号,\r\n换行\t制表\\反斜杠\\N \\. 👨\u200d👩\u200d👧 {x}'
    rows = [("guid-1", "1", name), ("guid-1", "2", "\\."), ("guid-1", "3", "\\N")]
    job = intake(csv_bytes(rows))
    assert [item.fields[2] for item in items(job).order_by("seq")] == [row[2] for row in rows]


def test_long_ids_all_ending_in_zero_are_warned_about() -> None:
    rows = [("guid-1", f"788130000000{n:03}0", "x") for n in range(25)]
    assert intake(csv_bytes(rows)).intake["warnings"][0]["code"] == "ids_rounded"
    rows.append(("guid-1", "7881300000000001", "x"))
    assert intake(csv_bytes(rows)).intake["warnings"] == []


def test_switched_off_gateway_makes_its_accounts_unusable(accounts: list[Account]) -> None:
    accounts[0].gateway.is_active = False
    accounts[0].gateway.save()
    job = intake(csv_bytes(good_rows(2)))
    assert job.intake["by_reason"][0]["code"] == "account_inactive"


def test_progress_shows_while_rows_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int]] = []
    save = loading.save_progress

    def spy(job_id: int, report: Any) -> bool:
        saved = save(job_id, report)
        stored = Job.objects.get(pk=job_id).intake
        seen.append((stored["phase"], stored["progress_rows"]))
        return saved

    monkeypatch.setattr("batches.intake.flow.PROGRESS_ROWS", 10)
    monkeypatch.setattr(loading, "save_progress", spy)
    intake(csv_bytes(good_rows(25)))
    assert seen == [("reading", 0), ("reading", 10), ("reading", 20), ("loading", 25)]
