"""manage.py periodic: an outage is told once and ends nothing."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import OperationalError

from batches import tasks
from batches.management.commands import periodic
from wecom_ops.local.files import free_port

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.django_db
def test_periodic_outage_is_told_once_and_once_when_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    command = periodic.Command()
    monkeypatch.setattr(periodic.connections, "close_all", lambda: None)
    outcomes: list[Exception | None] = [OperationalError(), OperationalError(), None, None]

    def round_of_work() -> None:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome

    monkeypatch.setattr(periodic, "run_periodic", round_of_work)
    with caplog.at_level(logging.INFO, logger=periodic.__name__):
        for _ in range(4):
            command.once()
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]


def test_periodic_without_servers_goes_on_until_told_to_stop() -> None:
    process = subprocess.Popen(
        [sys.executable, ROOT / "manage.py", "periodic", "--every", "0.05"],
        env=os.environ
        | {
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "DATABASE_URL": f"postgresql://nobody@127.0.0.1:{free_port()}/none",
            "REDIS_URL": f"redis://127.0.0.1:{free_port()}/0",
        },
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    assert process.stderr is not None
    with process:
        first = process.stderr.readline()
        threading.Timer(1.5, process.send_signal, [signal.SIGTERM]).start()
        rest = process.stderr.read()
    assert process.returncode == 0
    assert "periodic work failed" in first
    assert "periodic work failed" not in rest


def test_periodic_step_that_fails_does_not_keep_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def step(name: str, error: Exception | None) -> Callable[[], None]:
        def work() -> None:
            done.append(name)
            if error:
                raise error

        work.__name__ = name
        return work

    errors = {"rescue_lost_calls": OperationalError("gone"), "watch": ValueError("odd")}
    names = (
        "rescue_lost_calls", "advance_jobs", "ensure_lanes", "ensure_intakes", "prune_lanes",
        "watch", "deliver_alerts",
    )  # fmt: skip
    for name in names:
        monkeypatch.setattr(tasks, name, step(name, errors.get(name)))
    closed: list[bool] = []
    monkeypatch.setattr(tasks, "close_old_connections", lambda: closed.append(True))
    with pytest.raises(ExceptionGroup) as caught:
        tasks.run_periodic()
    assert tuple(done) == names
    assert len(closed) == 2
    assert list(caught.value.exceptions) == list(errors.values())


@pytest.mark.django_db
def test_periodic_another_step_that_fails_too_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    command = periodic.Command()
    monkeypatch.setattr(periodic.connections, "close_all", lambda: None)
    one = ExceptionGroup("watch: ValueError", [ValueError()])
    two = ExceptionGroup("watch: ValueError, advance_jobs: KeyError", [ValueError(), KeyError()])
    outcomes = [one, one, two, two]

    def round_of_work() -> None:
        raise outcomes.pop(0)

    monkeypatch.setattr(periodic, "run_periodic", round_of_work)
    with caplog.at_level(logging.INFO, logger=periodic.__name__):
        for _ in range(4):
            command.once()
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
