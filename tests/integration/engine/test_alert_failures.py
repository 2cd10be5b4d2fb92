"""The group's robot refuses, breaks off or is not there: alerts are kept, and no key is told."""

from __future__ import annotations

import itertools
import logging
import socket
import threading
from typing import Any

import pytest

from batches.engine.alert import Robot
from wecom_ops.local.files import free_port

from .robot import KEY, TAKEN, Clock, Group, make_alert, sent

pytestmark = pytest.mark.django_db


FAILURES = {
    "HTTP 500": (500, b"oops"),
    "HTTP 404": (404, b""),
    "HTTP 302": (302, b""),
    "errcode 45009": (200, {"errcode": 45009, "errmsg": f"api freq out of limit key={KEY}"}),
    "errcode 93000": (200, {"errcode": 93000, "errmsg": f"invalid webhook url key={KEY}"}),
    "errcode 40058": (200, {"errcode": 40058, "errmsg": KEY}),
    "an answer that is not the robot's": (200, b"<html>hello</html>"),
    "reset": "cut",
}


@pytest.mark.parametrize("what", [*FAILURES, "no errcode", "a list", "true"])
def test_deliver_without_a_proof_keeps_the_alerts_and_tells_no_key(
    what: str, group: Group, robot: Robot, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    odd = {
        "no errcode": (200, {"ok": True}),
        "a list": (200, [0]),
        "true": (200, {"errcode": True}),
    }
    caplog.set_level(logging.DEBUG)
    group.answers = [{**FAILURES, **odd}[what], TAKEN]
    make_alert()
    assert robot.deliver() == 0
    assert sent() == [False]
    warnings = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert (what if what in FAILURES else "an answer that is not the robot's") in warnings[0]
    # later, without a word of it, and then it is told
    assert robot.deliver() == 0
    assert len(group.bodies) == 1
    clock.now += 3600
    assert robot.deliver() == 1
    assert sent() == [True]
    assert group.contents[0] == group.contents[1]
    assert KEY not in caplog.text
    assert "webhook" not in caplog.text


def test_deliver_to_a_port_where_nobody_listens_backs_off_further_each_time(
    robot: Robot, clock: Clock, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.ALERT_WEBHOOK_URL = f"http://127.0.0.1:{free_port()}/cgi-bin/webhook/send?key={KEY}"
    caplog.set_level(logging.DEBUG)
    make_alert()
    tries = []
    for _ in range(1000):
        before = robot._not_before
        robot.deliver()
        if robot._not_before != before:
            tries.append(clock.now)
        clock.now += 1
    waits = [round(b - a) for a, b in itertools.pairwise(tries)]
    assert waits[:6] == [10, 20, 40, 80, 160, 300]
    assert sent() == [False]
    assert sum(r.levelno >= logging.WARNING for r in caplog.records) == 1
    assert KEY not in caplog.text


@pytest.mark.parametrize(
    "url", [f"not an address {KEY}", f"http://[{KEY}", f"ftp://x/{KEY}", f"http://{KEY}:x/"]
)
def test_deliver_to_an_address_that_is_none_raises_nothing_and_tells_no_key(
    url: str, robot: Robot, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.ALERT_WEBHOOK_URL = url
    caplog.set_level(logging.DEBUG)
    make_alert()
    assert robot.deliver() == 0
    assert sent() == [False]
    assert KEY not in caplog.text


def test_deliver_told_to_come_less_often_waits_a_minute(
    group: Group, robot: Robot, clock: Clock
) -> None:
    group.answers = [FAILURES["errcode 45009"], TAKEN]
    make_alert()
    robot.deliver()
    clock.now += 59
    assert robot.deliver() == 0
    clock.now += 1
    assert robot.deliver() == 1


def test_deliver_to_a_wrong_address_is_logged_once_and_tried_rarely(
    group: Group, robot: Robot, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    group.answers = [FAILURES["errcode 93000"]]
    make_alert()
    with caplog.at_level(logging.INFO):
        for _ in range(3600):
            robot.deliver()
            clock.now += 1
    assert len(caplog.records) == 1
    assert len(group.bodies) == 6
    assert sent() == [False]


def test_deliver_after_an_outage_tells_everything_and_says_so_in_the_log(
    group: Group, robot: Robot, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    group.answers = ["cut", (500, b""), TAKEN]
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            make_alert()
            robot.deliver()
            clock.now += 300
    assert len(group.contents) == 3
    assert "3 条新告警" in group.contents[-1]
    assert sent() == [True] * 3
    assert [r.levelname for r in caplog.records] == ["WARNING", "WARNING", "INFO"]


def test_deliver_a_header_that_cannot_be_read_tells_no_key(
    settings: Any, robot: Robot, caplog: pytest.LogCaptureFixture
) -> None:
    """The HTTP library would log the whole address with this one."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(20)

        def answer() -> None:
            peer, _ = listening.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(b'HTTP/1.1 200 OK\r\nbad header\r\nX: y\r\n\r\n{"errcode": 0}')

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        port = listening.getsockname()[1]
        settings.ALERT_WEBHOOK_URL = f"http://127.0.0.1:{port}/cgi-bin/webhook/send?key={KEY}"
        caplog.set_level(logging.DEBUG)
        make_alert()
        robot.deliver()
        thread.join(20)
    assert KEY not in caplog.text
