"""The report that tools outside rely on, and the commands that print it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from batches.domain.states import JobStatus, PauseReason
from batches.models import Event, Item, Job, JobMinute
from batches.selectors.progress import minutes_of, pace_of
from batches.selectors.report import achieved_per_min, job_counts, job_report
from tests.factories import ShardSpec, items_of, make_account, make_job

pytestmark = pytest.mark.django_db
MIXED = ShardSpec(pending=2, inflight=1, accepted=2, in_doubt=1, confirmed=3, failed=2, abandoned=1)
ITEM_KEYS = ["total", "pending", "submitted", "confirmed", "failed", "abandoned", "in_doubt"]
NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


def test_report_has_exactly_the_agreed_keys() -> None:
    report = job_report(make_job(shards=[MIXED]).pk)
    assert list(report) == [
        "id", "name", "status", "reason", "created", "items", "failures", "rejected_rows",
        "budget", "rate", "shards", "created_at", "started_at", "finished_at", "why",
    ]  # fmt: skip
    assert list(report["items"]) == ITEM_KEYS
    assert list(report["budget"]) == ["limit", "used"]
    assert list(report["rate"]) == ["limit_per_min", "achieved_per_min"]
    (shard,) = report["shards"]
    assert list(shard) == [
        "ordinal", "account", "status", "reason", "cursor", "last_advanced_at", "items",
    ]  # fmt: skip
    assert list(shard["items"]) == ITEM_KEYS
    json.dumps(report)


def test_report_counts_items_in_flight_as_submitted_and_sums_to_the_total() -> None:
    account = make_account(guid="kefu-7")
    job = make_job(shards=[ShardSpec(**{**_counts(MIXED), "account": account}), MIXED])
    report = job_report(job.pk)
    assert report["items"] == {
        "total": 24, "pending": 4, "submitted": 8, "confirmed": 6, "failed": 4,
        "abandoned": 2, "in_doubt": 2,
    }  # fmt: skip
    for items in (report["items"], *(shard["items"] for shard in report["shards"])):
        parts = ("pending", "submitted", "confirmed", "failed", "abandoned")
        assert sum(items[part] for part in parts) == items["total"]
    assert report["shards"][0]["account"] == "kefu-7"
    counts = job_counts(job.pk)
    assert counts.as_json() == report["items"]
    assert counts.inflight == 2


def _counts(spec: ShardSpec) -> dict[str, int]:
    names = ("pending", "inflight", "accepted", "in_doubt", "confirmed", "failed", "abandoned")
    return {name: getattr(spec, name) for name in names}


def test_report_of_a_job_without_shards_is_all_zero() -> None:
    job = make_job(status=JobStatus.PREPARING, shards=[])
    report = job_report(job.pk)
    assert set(report["items"].values()) == {0}
    assert (report["shards"], report["failures"], report["started_at"]) == ([], [], None)


def test_report_of_failures_by_category_and_code_most_first() -> None:
    job = make_job(
        shards=[
            ShardSpec(failed=1, category="credential", code="40014"),
            ShardSpec(failed=3, category="target_invalid", code="84061"),
            ShardSpec(failed=2, category="render", code=None),
        ]
    )
    assert job_report(job.pk)["failures"] == [
        {"category": "target_invalid", "code": "84061", "count": 3},
        {"category": "render", "code": "", "count": 2},
        {"category": "credential", "code": "40014", "count": 1},
    ]


def test_report_carries_reason_budget_and_created() -> None:
    job = make_job(
        status=JobStatus.PAUSED,
        pause_reason=PauseReason.BUDGET,
        budget_limit=3,
        rejected_rows=4,
        rate_limit_per_min=90,
        shards=[ShardSpec(pending=1, confirmed=3)],
    )
    report = job_report(job.pk, created=True)
    assert (report["status"], report["reason"], report["created"]) == ("paused", "budget", True)
    assert (report["budget"], report["rejected_rows"]) == ({"limit": 3, "used": 3}, 4)
    assert report["rate"] == {"limit_per_min": 90, "achieved_per_min": 0.0}
    assert "预算 3 条已用完" in report["why"]


def _minutes(job: Job, *sent: int) -> None:
    for number, count in enumerate(sent):
        minute = NOON + timedelta(minutes=number)
        JobMinute.objects.create(job=job, minute=minute, sent=count)


def test_rate_of_a_running_job_covers_the_last_minutes_alone() -> None:
    job = make_job(started_at=NOON)
    _minutes(job, 600, *[60] * 9)
    now = NOON + timedelta(minutes=9, seconds=30)
    assert achieved_per_min(job, now=now) == pytest.approx(6 * 60 / 5.5)


def test_rate_of_a_job_just_started_covers_the_time_since() -> None:
    job = make_job(started_at=NOON + timedelta(seconds=40))
    _minutes(job, 20, 5)
    assert achieved_per_min(job, now=NOON + timedelta(seconds=65)) == pytest.approx(60)


def test_pace_on_screen_of_a_job_just_started_covers_the_time_since() -> None:
    started = timezone.now() - timedelta(seconds=30)
    job = make_job(started_at=started)
    JobMinute.objects.create(job=job, minute=started.replace(second=0, microsecond=0), sent=30)
    assert pace_of([job.pk])[job.pk].per_min == pytest.approx(60, rel=0.2)


def test_rate_counts_refused_sends_on_screen_in_the_report_and_in_the_curve() -> None:
    """Two hundred refusals in a minute are two hundred sends, whatever the budget got back."""
    started = timezone.now() - timedelta(seconds=60)
    job = make_job(started_at=started)
    minute = started.replace(second=0, microsecond=0)
    JobMinute.objects.create(job=job, minute=minute, failed=200, returned=200)
    assert pace_of([job.pk])[job.pk].per_min == pytest.approx(200, rel=0.1)
    assert achieved_per_min(job) == pytest.approx(200, rel=0.1)
    assert sum(minutes_of([job.pk])[job.pk]) == 200
    Job.objects.filter(pk=job.pk).update(
        status="completed", finished_at=started + timedelta(seconds=50)
    )
    assert achieved_per_min(Job.objects.get(pk=job.pk)) > 190


def test_job_that_stands_has_no_pace_on_screen() -> None:
    started = timezone.now() - timedelta(seconds=30)
    job = make_job(started_at=started, status="paused", pause_reason="operator")
    JobMinute.objects.create(job=job, minute=started.replace(second=0, microsecond=0), sent=30)
    assert pace_of([job.pk]) == {}


def test_rate_in_the_first_moment_is_no_flood() -> None:
    job = make_job(started_at=NOON)
    _minutes(job, 1)
    assert achieved_per_min(job, now=NOON + timedelta(milliseconds=1)) == 60


def test_rate_of_a_paused_minute_counts_as_time_while_running() -> None:
    job = make_job(started_at=NOON)
    _minutes(job, 60, 0, 60)
    assert achieved_per_min(job, now=NOON + timedelta(minutes=3)) == pytest.approx(40)


def test_rate_after_the_end_is_over_active_minutes() -> None:
    job = make_job(
        status=JobStatus.COMPLETED,
        started_at=NOON + timedelta(seconds=30),
        finished_at=NOON + timedelta(minutes=30, seconds=15),
        shards=[ShardSpec(confirmed=1)],
    )
    _minutes(job, 30, 60)
    JobMinute.objects.create(job=job, minute=NOON + timedelta(minutes=30), sent=15)
    assert achieved_per_min(job) == pytest.approx(60)


def test_rate_of_a_job_that_never_started_is_zero() -> None:
    assert achieved_per_min(make_job(status=JobStatus.AWAITING)) == 0


# --- commands ---


def _json(capsys: pytest.CaptureFixture[str]) -> dict:
    return json.loads(capsys.readouterr().out)


def test_job_report_command_prints_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    job = make_job(name="回访 A 组", shards=[MIXED])
    call_command("job_report", str(job.pk), "--json")
    assert _json(capsys) == job_report(job.pk)
    call_command("job_report", str(job.pk))
    out = capsys.readouterr().out
    assert "回访 A 组" in out
    assert "运行中" in out
    assert "其中存疑 1" in out
    assert "其他拒绝" in out


def test_job_report_command_aligns_wide_characters(capsys: pytest.CaptureFixture[str]) -> None:
    from batches.management.commands._report_text import width

    account = make_account(guid="a" * 20)
    job = make_job(shards=[ShardSpec(confirmed=120, account=account), ShardSpec(pending=1)])
    call_command("job_report", str(job.pk))
    lines = capsys.readouterr().out.splitlines()
    start = next(at for at, line in enumerate(lines) if "aaaa" in line)
    assert len({width(line) for line in lines[start - 1 : start + 2]}) == 1


def test_job_report_command_of_an_unknown_job_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CommandError, match="没有编号为 4242 的作业") as refused:
        call_command("job_report", "4242")
    assert refused.value.returncode == 2
    with pytest.raises(SystemExit) as ended:
        call_command("job_report", "4242", "--json")
    assert ended.value.code == 2
    assert _json(capsys)["code"] == "invalid_input"


def _control(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict]:
    """Exit code and JSON of `control_job`."""
    code = 0
    try:
        call_command("control_job", *(str(word) for word in words), "--json")
    except SystemExit as ended:
        code = int(str(ended.code))
    return code, _json(capsys)


def test_control_job_verbs_act_and_print_the_fresh_report(
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = make_job(budget_limit=5, shards=[ShardSpec(pending=3, failed=1), ShardSpec(pending=1)])
    for words, status in (
        (["pause", "--reason", "看一下"], "paused"),
        (["raise_budget", "--to", "9", "--reason", "效果好"], "paused"),
        (["resume"], "running"),
        (["retry_failed", "--category", "other"], "running"),
        (["terminate", "--reason", "失控"], "terminating"),
    ):
        code, report = _control(capsys, job.pk, *words)
        assert (code, report["status"], report["id"]) == (0, status, job.pk)
    assert report["items"]["pending"] == 5
    assert report["budget"]["limit"] == 9
    assert list(Event.objects.order_by("id").values_list("reason", flat=True)) == [
        "看一下", "效果好", "", "", "失控",
    ]  # fmt: skip


def test_control_job_cancel_exits_0(capsys: pytest.CaptureFixture[str]) -> None:
    code, report = _control(capsys, make_job().pk, "cancel", "--reason", "不发了")
    assert (code, report["status"]) == (0, "cancelling")


@pytest.mark.parametrize(
    "words",
    [
        ["cancel"],
        ["terminate"],
        ["raise_budget", "--reason", "r"],
        ["raise_budget", "--to", "9"],
        ["raise_budget", "--to", "1", "--reason", "r"],
        ["pause", "--to", "3"],
        ["pause", "--category", "other"],
        ["retry_failed", "--category", "nonsense"],
    ],
)
def test_control_job_with_bad_input_exits_2_and_changes_nothing(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    job = make_job(budget_limit=5, shards=[ShardSpec(pending=1, failed=1)])
    code, said = _control(capsys, job.pk, *words)
    assert (code, said["code"]) == (2, "invalid_input")
    assert said["error"]
    job.refresh_from_db()
    assert (job.status, job.version) == ("running", 0)


def test_control_job_of_an_unknown_job_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert _control(capsys, 4242, "pause")[0] == 2


def test_control_job_in_the_wrong_state_exits_3(capsys: pytest.CaptureFixture[str]) -> None:
    job = make_job(status=JobStatus.CANCELLED, shards=[ShardSpec(abandoned=1)])
    code, said = _control(capsys, job.pk, "pause")
    assert (code, said["code"]) == (3, "wrong_state")
    assert "已取消" in said["error"]
    with pytest.raises(CommandError, match="已取消") as refused:
        call_command("control_job", str(job.pk), "resume")
    assert refused.value.returncode == 3


def test_control_job_without_json_prints_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    job = make_job()
    call_command("control_job", str(job.pk), "pause")
    assert "已暂停" in capsys.readouterr().out
    assert not Item.objects.exclude(state="pending").exists()
    assert items_of(job)
