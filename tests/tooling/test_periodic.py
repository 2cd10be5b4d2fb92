"""manage.py periodic: an outage is told once and ends nothing."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from django.db import OperationalError

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
