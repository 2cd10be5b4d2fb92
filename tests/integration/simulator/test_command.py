"""`manage.py simulate_gateway` as a process: start, ports, signals, its record."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from django.conf import settings

MANAGE = Path(settings.BASE_DIR) / "manage.py"
BODY = {"guid": "1", "toId": "2", "content": "你好"}


@pytest.fixture
def simulate() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    running: list[subprocess.Popen[str]] = []

    def run(*options: str) -> subprocess.Popen[str]:
        # No server listens there: the command must not need one.
        nowhere = {
            "DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none",
            "REDIS_URL": "redis://127.0.0.1:9/0",
            "DJANGO_SETTINGS_MODULE": os.environ["DJANGO_SETTINGS_MODULE"],
        }
        process = subprocess.Popen(
            [sys.executable, str(MANAGE), "simulate_gateway", *options],
            env={**os.environ, **nowhere},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield run
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=10)


def ready(process: subprocess.Popen[str]) -> str:
    line = process.stdout.readline()
    if not line:
        pytest.fail(process.communicate(timeout=10)[1])
    assert line.startswith("simulator ready on http://127.0.0.1:")
    return line.split()[-1]


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_it_cleanly_even_while_a_call_hangs(simulate, name):
    process = simulate("--port", "0")
    url = ready(process)
    requests.post(f"{url}/_sim/faults", json={"kind": "hang"}, timeout=10)
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as hanging:
        body = json.dumps(BODY).encode()
        head = f"POST /message/sendText HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        hanging.sendall(head.encode() + body)
        process.send_signal(name)
        assert process.wait(timeout=10) == 0
    assert process.stderr.read() == ""


def test_port_in_use_is_said_and_exits_2(simulate):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        process = simulate("--port", port)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert f"127.0.0.1:{port} is already in use" in errors
    assert "Traceback" not in errors


def test_limits_and_wording_come_from_options(simulate):
    url = ready(simulate("--port", "0", "--limit-account", "1/min", "--rate-refusal", "45009"))
    answers = [requests.post(f"{url}/message/sendText", json=BODY, timeout=10) for _ in range(2)]
    assert [answer.json()["code"] for answer in answers] == [0, 45009]
    url = ready(simulate("--port", "0", "--no-limits", "--latency-ms", "1-5", "--seed", "1"))
    limits = requests.get(f"{url}/_sim/limits", timeout=10).json()
    assert (limits["account_per_min"], limits["ip_per_min"]) == (None, None)


@pytest.mark.parametrize(
    "option",
    [("--latency-ms", "80-20"), ("--latency-ms", "x"), ("--limit-ip", "0"), ("--port", "70000")],
)
def test_senseless_option_is_refused(simulate, option):
    process = simulate("--port", "0", *option)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert option[1] in errors


def test_record_survives_a_kill_and_is_gone_on_with(simulate, tmp_path):
    record = tmp_path / "effects.jsonl"
    process = simulate("--port", "0", "--record", str(record))
    url = ready(process)
    first = requests.post(f"{url}/message/sendText", json=BODY, timeout=10).json()["data"]
    process.kill()
    process.wait(timeout=10)
    with record.open("a", encoding="utf-8") as file:
        file.write('{"seq":2,"half')
    url = ready(simulate("--port", "0", "--record", str(record), "--limit-account", "2"))
    second = requests.post(f"{url}/message/sendText", json=BODY, timeout=10).json()["data"]
    lines = requests.get(f"{url}/_sim/calls", timeout=10).text.splitlines()
    calls = [json.loads(line) for line in lines]
    assert [call["seq"] for call in calls] == [1, 2]
    assert [call["msg_id"] for call in calls] == [
        first["msgUniqueIdentifier"],
        second["msgUniqueIdentifier"],
    ]
    assert calls[0]["msg_id"] != calls[1]["msg_id"]
    # what was sent before the kill still counts in the window
    assert requests.post(f"{url}/message/sendText", json=BODY, timeout=10).status_code == 429
