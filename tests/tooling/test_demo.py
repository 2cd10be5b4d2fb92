"""The demo's choices and its judgement of a finished job."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from wecom_ops.local import demo, instance, once, sample
from wecom_ops.local.files import exclusive_lock

REPORT: dict[str, Any] = {
    "id": 1,
    "name": "demo",
    "status": "completed",
    "reason": "",
    "items": {
        "total": 10,
        "pending": 0,
        "submitted": 0,
        "confirmed": 8,
        "failed": 1,
        "abandoned": 1,
        "in_doubt": 0,
    },
    "failures": [{"category": "target_invalid", "code": "40003", "count": 1}],
    "rejected_rows": 2,
    "shards": [],
    "started_at": "a",
    "finished_at": "b",
}


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


def test_port_asked_for_and_taken_is_refused(
    taken_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        demo.choose_port(taken_port, once=False)
    assert refused.value.code == 2
    assert str(taken_port) in capsys.readouterr().err


def test_port_default_taken_is_replaced_and_told(
    taken_port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "DEFAULT_PORT", taken_port)
    port = demo.choose_port(None, once=False)
    assert port != taken_port
    assert f"using {port}" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--csv", "README.md"], ["--once", "--csv", "no-such"]])
def test_arguments_that_make_no_sense_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        demo.arguments(arguments)
    assert refused.value.code == 2


def test_instance_in_use_gives_a_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance, "ROOT", tmp_path)
    with instance.open_instance(keep=True) as first:
        assert (first.kept, first.home) == (True, tmp_path / "var" / "demo")
        key = first.secret("secret_key")
        with instance.open_instance(keep=True) as second:
            assert not second.kept
            assert "already runs" in second.note
            assert second.secret("secret_key") != key
        assert not second.home.exists()
    with instance.open_instance(keep=True) as again:
        assert (again.kept, again.secret("secret_key")) == (True, key)
        assert (again.home / "secret_key").stat().st_mode & 0o077 == 0


def test_lock_let_go_can_be_taken(tmp_path: Path) -> None:
    with exclusive_lock(tmp_path / "lock") as first, exclusive_lock(tmp_path / "lock") as second:
        assert (first, second) == (True, False)
    with exclusive_lock(tmp_path / "lock") as third:
        assert third


def test_books_that_close_have_no_fault() -> None:
    assert once.unaccounted(REPORT, 12) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"status": "paused", "reason": "breaker"}, "paused (reason: breaker)"),
        ({"items": REPORT["items"] | {"confirmed": 7}}, "of 10 items 9 have ended"),
        ({"items": REPORT["items"] | {"confirmed": 7, "submitted": 1}}, "of 10 items 9"),
        ({"items": REPORT["items"] | {"submitted": 1}}, "of 10 items 10"),
        ({"rejected_rows": 1}, "12 rows were read"),
    ],
)
def test_books_that_do_not_close_name_the_fault(change: dict[str, Any], fault: str) -> None:
    found = once.unaccounted(deepcopy(REPORT) | change, 12)
    assert any(fault in each for each in found)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.csv", '账号,客户ID,姓名\r\n1,2,毛\r\n,,\r\n1,3,"两\n行"\r\n'.encode("gb18030")),
        ("b.csv", "账号;客户ID\n1;2\n1;3\n\n".encode("utf-8-sig")),
        ("c.csv", "账号\t客户ID\n1\t2\n1\t3\n".encode("utf-16")),
    ],
)
def test_rows_are_counted_apart_from_the_intake(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    assert once.count_rows(tmp_path / name) == 2


def test_description_of_a_job_shows_every_figure() -> None:
    text = once.describe(REPORT)
    for piece in ("completed", "confirmed  8", "target_invalid 40003: 1", "2 rows"):
        assert piece in text


def test_accounts_that_only_the_file_names_are_added_at_rates_that_fit(tmp_path: Path) -> None:
    examples = sample.account_rows()
    known = examples[0]["guid"]
    lines = ["账号,客户ID", "1688850000000999,7881300000000001", "1.68885E+15,7881300000000002"]
    lines += [f"{known},788130000{number:07}" for number in range(1000)]
    file = tmp_path / "own.csv"
    file.write_text("\n".join(lines), encoding="gb18030")
    audience = sample.audience_of(file)
    assert audience.rows_by_account == {"1688850000000999": 1, known: 1000}
    assert "{name}" not in audience.message  # the file has no names
    rows = {row["guid"]: row for row in sample.account_rows(audience)}
    assert len(rows) == len(examples) + 1
    assert int(rows[known]["total_rate_per_min"]) >= 2000
    assert int(rows["1688850000000999"]["total_rate_per_min"]) == 600
    assert sample.simulator_limits(list(rows.values()))[1] >= 20 * 600


def test_audience_of_the_example_is_greeted_by_name() -> None:
    audience = sample.audience_of(sample.CUSTOMERS)
    assert audience.message.startswith("{name}")
    assert set(audience.rows_by_account) == {row["guid"] for row in sample.account_rows()}


def test_audience_of_what_is_no_table_is_left_to_the_real_check(tmp_path: Path) -> None:
    file = tmp_path / "own.csv"
    file.write_bytes(b"\x89PNG\r\n\x1a\n")
    assert sample.audience_of(file).rows_by_account == {}
