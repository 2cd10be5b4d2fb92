"""What bounds a job, given with its submission or to its commands."""

from __future__ import annotations

import io
import json
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from batches.domain.breaker import Thresholds
from batches.domain.errors import InvalidInputError
from batches.domain.problems import Problem
from batches.models import Event, Job, Upload
from batches.services.submissions import run_intake
from tests.factories import ShardSpec, make_job

from .conftest import csv_bytes, good_rows, submission

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("accounts")]
DATA = csv_bytes(good_rows(6))
LATER = {
    "start_at": datetime(2030, 5, 1, 9, 30),  # noqa: DTZ001 - as a form gives it
}


@pytest.fixture
def spring(monkeypatch: pytest.MonkeyPatch) -> None:
    now = timezone.make_aware(datetime(2030, 4, 30, 12))  # noqa: DTZ001 - local time
    monkeypatch.setattr("batches.services.submission_limits.timezone.now", lambda: now)


def codes(**options: Any) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        submission(DATA, **options)
    assert not Job.objects.exists()
    assert not Upload.objects.exists()
    return [p.code for p in caught.value.problems if isinstance(p, Problem)]


def test_submission_keeps_every_limit(spring: None) -> None:
    thresholds = Thresholds(streak=3, ratio=0.2, window=60, min_sample=20, shard_share=0.9)
    job = submission(
        DATA,
        **LATER,
        window_from=time(22),
        window_to=time(6),
        call_size=20,
        max_attempts=2,
        priority=7,
        breaker=thresholds,
    ).job
    assert job.start_at is not None
    assert timezone.localtime(job.start_at).isoformat() == "2030-05-01T09:30:00+08:00"
    assert (job.window_from, job.window_to) == (time(22), time(6))
    assert (job.call_size, job.max_attempts, job.priority) == (20, 2, 7)
    assert (job.breaker_streak, job.breaker_ratio, job.breaker_window) == (3, 0.2, 60)
    assert (job.breaker_min_sample, job.breaker_shard_share) == (20, 0.9)
    assert run_intake(job.pk)
    job.refresh_from_db()
    assert (job.status, job.call_size) == ("awaiting", 20)


def test_every_impossible_limit_is_listed_and_nothing_stored() -> None:
    assert codes(
        rate_limit_per_min=0,
        window_from=time(9),
        call_size=51,
        max_attempts=0,
        priority=101,
        breaker=Thresholds(streak=0, ratio=2),
    ) == [
        "rate_range",
        "hours_half",
        "call_size_range",
        "max_attempts_range",
        "priority_range",
        "breaker_streak_range",
        "breaker_ratio_range",
    ]


def test_start_in_the_past_is_refused_and_just_now_is_not() -> None:
    now = timezone.now()
    assert codes(start_at=now - timedelta(seconds=90)) == ["start_past"]
    assert submission(DATA, start_at=now - timedelta(seconds=30)).created


@pytest.mark.parametrize("key", [None, "k"])
def test_submission_repeated_after_its_start_finds_its_job(
    key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = timezone.now() + timedelta(minutes=5)
    first = submission(DATA, start_at=start, idempotency_key=key)
    after = start + timedelta(hours=1)
    monkeypatch.setattr("batches.services.submission_limits.timezone.now", lambda: after)
    again = submission(DATA, start_at=start, idempotency_key=key)
    assert (again.created, again.job.pk) == (False, first.job.pk)


@pytest.mark.parametrize(
    "change",
    [
        {"start_at": timezone.now() + timedelta(hours=9)},
        {"window_from": time(9), "window_to": time(18)},
        {"call_size": 2, "max_attempts": 3, "priority": 5, "breaker": Thresholds(streak=3)},
    ],
    ids=["start", "hours", "others"],
)
def test_other_limits_make_no_other_submission(change: dict[str, Any]) -> None:
    first = submission(DATA)
    second = submission(DATA, **change)
    assert (second.created, second.job.pk) == (False, first.job.pk)


# --- create_job ---


def create(tmp_path: Path, *args: object) -> tuple[Any, int]:
    """(JSON, exit code) of create_job."""
    file = tmp_path / "名单.csv"
    file.write_bytes(DATA)
    out, code = io.StringIO(), 0
    words = ["--action", "send_text", "--csv", file, "--param", "content=您好", *args, "--json"]
    try:
        call_command("create_job", *map(str, words), stdout=out, stderr=io.StringIO())
    except SystemExit as stop:
        code = int(str(stop.code))
    return json.loads(out.getvalue()), code


def test_create_job_takes_every_limit(tmp_path: Path) -> None:
    day = timezone.localdate() + timedelta(days=2)
    words = (
        f"--start-at {day}T09:30 --window 09:00-21:30 --call-size 20 --max-attempts 2 "
        "--priority -3 --breaker-streak 4 --breaker-ratio 0.25 --breaker-window 40 "
        "--breaker-min-sample 10 --breaker-shard-share 0.75"
    )
    report, code = create(tmp_path, *words.split())
    assert code == 0
    job = Job.objects.get(pk=report["id"])
    assert job.start_at is not None
    assert timezone.localtime(job.start_at).isoformat() == f"{day}T09:30:00+08:00"
    assert (job.window_from, job.window_to) == (time(9), time(21, 30))
    assert (job.call_size, job.max_attempts, job.priority) == (20, 2, -3)
    assert (job.breaker_streak, job.breaker_ratio) == (4, 0.25)
    assert (job.breaker_window, job.breaker_min_sample, job.breaker_shard_share) == (40, 10, 0.75)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--rate", 0], "rate_range"),
        (["--start-at", "2020-01-01T09:00"], "start_past"),
        (["--start-at", "2099-01-01T09:00"], "start_far"),
        (["--window", "09:00-09:00"], "hours_empty"),
        (["--call-size", 0], "call_size_range"),
        (["--breaker-ratio", "nan"], "breaker_ratio_range"),
        (["--stages", "5,5"], "stages_order"),
    ],
)
def test_create_job_with_an_impossible_limit_exits_2(
    tmp_path: Path, words: list[object], code: str
) -> None:
    told, status = create(tmp_path, *words)
    assert status == 2
    assert [problem["code"] for problem in told["problems"]] == [code]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--window", "9 to 5"], "HH:MM-HH:MM"),
        (["--window", "09:00"], "HH:MM-HH:MM"),
        (["--start-at", "tomorrow"], "ISO 8601"),
    ],
)
def test_create_job_with_unreadable_times_says_how_to_write_them(
    tmp_path: Path, words: list[object], message: str
) -> None:
    with pytest.raises(CommandError, match=message):
        create(tmp_path, *words)


# --- control_job ---


def control(*words: object) -> tuple[Any, int]:
    out, code = io.StringIO(), 0
    try:
        call_command("control_job", *map(str, words), "--json", stdout=out)
    except SystemExit as stop:
        code = int(str(stop.code))
    return json.loads(out.getvalue()), code


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr("batches.services.acting.wake_lanes", lambda: None)
    return make_job(rate_limit_per_min=60, shards=[ShardSpec(pending=2)])


@pytest.mark.parametrize(
    ("words", "wanted", "kind"),
    [
        ("set_rate --to 30", {"rate_limit_per_min": 30}, "job.rate_set"),
        ("set_rate --to none", {"rate_limit_per_min": None}, "job.rate_set"),
        (
            "set_hours --window 22:00-06:30",
            {"window_from": time(22), "window_to": time(6, 30)},
            "job.hours_set",
        ),
        ("set_hours --window all", {"window_from": None, "window_to": None}, "job.hours_set"),
        ("set_start --start-at now", {"start_at": None}, "job.start_set"),
        (
            "set_breaker --breaker-streak 3 --breaker-ratio 0.4",
            {"breaker_streak": 3, "breaker_ratio": 0.4, "breaker_window": 200},
            "job.breaker_set",
        ),
        ("set_priority --to -5", {"priority": -5}, "job.priority_set"),
    ],
)
def test_control_job_sets_and_records(
    job: Job, words: str, wanted: dict[str, Any], kind: str
) -> None:
    report, code = control(job.pk, *words.split(), "--reason", "晚高峰")
    assert (code, report["id"]) == (0, job.pk)
    assert Job.objects.filter(pk=job.pk).values(*wanted).get() == wanted
    event = Event.objects.get(job=job)
    assert (event.kind, event.reason) == (kind, "晚高峰")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("set_rate --to 0", "至少为每分钟 1 条"),
        ("set_rate", "set_rate 需要 --to N"),
        ("set_hours", "set_hours 需要 --window"),
        ("set_start", "set_start 需要 --start-at"),
        ("set_breaker", "至少填写一项"),
        ("set_breaker --to 5", "--to 只用于"),
        ("set_priority --to 300", "-100 到 100"),
        ("set_priority --to none", "set_priority 需要 --to N"),
        ("raise_budget --to none --reason r", "raise_budget 需要 --to N"),
        ("pause --window all", "--window 只用于 set_hours"),
        ("pause --breaker-ratio 0.5", "--breaker-ratio 只用于 set_breaker"),
    ],
)
def test_control_job_that_cannot_set_exits_2_and_changes_nothing(
    job: Job, words: str, message: str
) -> None:
    told, code = control(job.pk, *words.split())
    assert (code, told["code"]) == (2, "invalid_input")
    assert message in told["error"]
    assert Job.objects.get(pk=job.pk).version == job.version


def test_control_job_set_start_after_the_first_send_exits_3(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("batches.services.acting.wake_lanes", lambda: None)
    begun = make_job(shards=[ShardSpec(pending=1, confirmed=1)])
    told, code = control(begun.pk, "set_start", "--start-at", "now")
    assert (code, told["code"]) == (3, "wrong_state")
