"""Alerts reach a group robot: one message, within its limits, never lost, its key never told."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone, translation

from batches.domain.alerts import ALERTS, CREDENTIAL, NO_LANE
from batches.engine import alert as alerting
from batches.engine.alert import Robot
from batches.engine.alert_text import MOST_BYTES, message
from batches.models import Alert, Job
from batches.store import alerts as store
from batches.store.queries import sql
from tests.factories import make_account, make_job, other_connection
from wecom_ops.local.files import free_port

pytestmark = pytest.mark.django_db
KEY = "693a91f6-7xxx-4bc4-97a0-0ec2sifa5aaa"
TAKEN: tuple[int, Any] = (200, {"errcode": 0, "errmsg": "ok"})


@dataclass
class Group:
    """A robot on a real port that answers as told, the last answer for ever."""

    url: str = ""
    #: (status, JSON or bytes), or "cut" for a connection that is closed without an answer
    answers: list[Any] = field(default_factory=lambda: [TAKEN])
    bodies: list[bytes] = field(default_factory=list)
    types: list[str] = field(default_factory=list)

    @property
    def contents(self) -> list[str]:
        return [json.loads(body)["markdown"]["content"] for body in self.bodies]


@pytest.fixture
def group(settings: Any) -> Iterator[Group]:
    found = Group()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == f"/cgi-bin/webhook/send?key={KEY}"
            found.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            found.types.append(self.headers["Content-Type"])
            answer = found.answers.pop(0) if len(found.answers) > 1 else found.answers[0]
            if answer == "cut":
                self.close_connection = True
                self.connection.close()
                return
            status, said = answer
            body = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: Any) -> None:
            pass

        def finish(self) -> None:
            with contextlib.suppress(OSError, ValueError):  # it was cut on purpose
                super().finish()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}/cgi-bin/webhook/send?key={KEY}"
    settings.ALERT_WEBHOOK_URL = found.url
    settings.PUBLIC_URL = ""
    settings.ENVIRONMENT_LABEL = ""
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


class Clock:
    """Seconds, as far as the test lets them pass."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def robot(clock: Clock) -> Robot:
    return Robot(clock=clock)


def make_alert(kind: str = NO_LANE, **columns: Any) -> Alert:
    number = Alert.objects.count()
    defaults: dict[str, Any] = {
        "key": f"k{number}",
        "text": ALERTS[kind].text,
        "params": {
            "jobs": 3, "account": f"客服{number}号", "shards": 1, "accounts": ["甲", "乙"],
            "count": 5, "used": 9, "minutes": 60, "gateway": "gw",
        },
    }  # fmt: skip
    return Alert.objects.create(kind=kind, **(defaults | columns))


def sent() -> list[bool]:
    return [alert.sent_at is not None for alert in Alert.objects.order_by("id")]


def earlier(seconds: float = 60) -> None:
    """As if what was told had been told a while ago."""
    Alert.objects.filter(sent_at__isnull=False).update(
        sent_at=timezone.now() - timedelta(seconds=seconds)
    )


# --- one message for all ---


def test_deliver_all_new_alerts_in_one_message_and_each_only_once(
    group: Group, robot: Robot
) -> None:
    job = make_job(name="五月回访")
    make_alert("job.breaker", job=job)
    make_alert(CREDENTIAL, account=make_account(guid="1688000000000001"))
    make_alert()
    assert robot.deliver() == 3
    (content,) = group.contents
    assert json.loads(group.bodies[0])["msgtype"] == "markdown"
    assert group.types == ["application/json; charset=utf-8"]
    assert "3 条新告警" in content
    assert f"五月回访（/admin/jobs/{job.pk}/）：失败太多" in content
    assert "（/admin/accounts/?q=1688000000000001）" in content
    assert "没有执行进程在运行，3 个作业在等" in content
    assert sent() == [True, True, True]
    earlier()
    assert robot.deliver() == 0
    assert len(group.bodies) == 1


def test_deliver_with_a_public_address_makes_links(
    group: Group, robot: Robot, settings: Any
) -> None:
    settings.PUBLIC_URL = "https://console.example.com"
    settings.ENVIRONMENT_LABEL = "生产环境"
    job = make_job(name="五月回访")
    make_alert("job.breaker", job=job)
    robot.deliver()
    assert f"[五月回访](https://console.example.com/admin/jobs/{job.pk}/)" in group.contents[0]
    assert group.contents[0].startswith("**【生产环境】批量作业：1 条新告警**")


def test_deliver_speaks_the_installations_language_whoever_calls(
    group: Group, robot: Robot
) -> None:
    make_alert()
    with translation.override("en"):
        robot.deliver()
    assert "条新告警" in group.contents[0]


def test_deliver_without_an_address_keeps_everything(robot: Robot, settings: Any) -> None:
    settings.ALERT_WEBHOOK_URL = ""
    make_alert()
    assert robot.deliver() == 0
    assert sent() == [False]


def test_deliver_with_nothing_new_asks_nobody(group: Group, robot: Robot) -> None:
    make_alert(sent_at=timezone.now() - timedelta(hours=1))
    assert robot.deliver() == 0
    assert group.bodies == []


def test_deliver_an_alert_that_is_over_says_so_after_the_open_ones(
    group: Group, robot: Robot
) -> None:
    over = make_alert("job.breaker", job=make_job(name="甲作业"), closed_at=timezone.now())
    make_alert(closed_at=timezone.now() - timedelta(days=8))
    make_alert("job.breaker", job=make_job(name="乙作业"))
    assert robot.deliver() == 2
    content = group.contents[0]
    assert content.index("乙作业") < content.index("甲作业")
    assert "：（已解除）失败太多" in content
    over.refresh_from_db()
    assert over.sent_at is not None


# --- its limits ---


def test_deliver_two_messages_are_never_close_together(group: Group, robot: Robot) -> None:
    make_alert()
    assert robot.deliver() == 1
    make_alert()
    assert robot.deliver() == 0, "a process beside it must not be faster either"
    assert Robot(clock=lambda: 0.0).deliver() == 0
    earlier(alerting.SPACING + 1)
    assert robot.deliver() == 1
    assert 60 / alerting.SPACING <= 19


@pytest.mark.parametrize("count", [1, 20, 200, 2000])
def test_message_of_any_number_of_alerts_fits_and_counts_them_all(count: int) -> None:
    alerts = [
        store.Unsent(
            id=number,
            kind=CREDENTIAL if number % 3 else "job.breaker",
            text=ALERTS[CREDENTIAL if number % 3 else "job.breaker"].text,
            params={"account": f"客服第{number}号" * 3, "shards": 2, "count": 4},
            job_id=number if number % 3 == 0 else None,
            job_name=f"很长的作业名称{number}" * 20,
            account_id=number if number % 3 else None,
            account_guid=f"1688{number:012}" if number % 3 else None,
            opened_at=timezone.now(),
            closed_at=None,
        )
        for number in range(1, count + 1)
    ]
    content = message(alerts, public_url="https://console.example.com/" + "x" * 60)
    assert len(content.encode()) <= MOST_BYTES
    lines = content.splitlines()
    assert f"{count} 条新告警" in lines[0]
    if count == 2000:
        shown = len(lines) - 2
        assert f"另有 {2000 - shown} 条：" in lines[-1]
        counts = [int(n) for n in re.findall(r"(?:失效|熔断) (\d+) 条", lines[-1])]
        assert sum(counts) == 2000 - shown
    elif count == 1:
        assert "另有" not in content


def test_message_of_a_name_with_markup_makes_no_link_mention_or_new_line(
    group: Group, robot: Robot
) -> None:
    name = "<@all> [点我](http://evil.example)\n> **假** `x`"
    make_alert("job.breaker", job=make_job(name=name))
    make_alert(CREDENTIAL, params={"account": name, "shards": 1})
    robot.deliver()
    (content,) = group.contents
    assert len(content.splitlines()) == 3
    for mark in ("<@", "](http://evil", "`"):
        assert mark not in content
    assert content.count("**") == 2


# --- when it does not work ---


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
    import socket

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


# --- two at once, or one in the middle ---


def test_deliver_while_another_process_tells_does_nothing(group: Group, robot: Robot) -> None:
    make_alert()
    with other_connection() as other:
        other.execute(sql("alert_turn"))
        assert robot.deliver() == 0
        assert group.bodies == []
        other.execute(sql("alert_turn_over"))
    assert robot.deliver() == 1


def test_deliver_that_dies_before_it_marks_tells_again_and_frees_the_turn(
    group: Group, robot: Robot, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_alert()
    with monkeypatch.context() as patched:
        patched.setattr(store, "mark_sent", lambda _ids: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            robot.deliver()
    assert sent() == [False]
    with other_connection() as other:
        held = other.execute(sql("alert_turn")).fetchone()
        assert held is not None
        assert held[0], "the turn is free again"
        other.execute(sql("alert_turn_over"))
    assert robot.deliver() == 1


@pytest.mark.django_db(transaction=True)
def test_two_periodic_processes_at_once_tell_each_alert_once(group: Group) -> None:
    from batches.engine.watch import watch

    for _ in range(5):
        make_job(status="paused", pause_reason="breaker")
    barrier = threading.Barrier(4)
    failures: list[BaseException] = []

    def rounds() -> None:
        robot = Robot()
        try:
            for _ in range(5):
                barrier.wait(30)
                watch()
                robot.deliver()
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=rounds) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    names = Job.objects.values_list("name", flat=True)
    told = "\n".join(group.contents)
    assert [told.count(f"{name}（") for name in names] == [1] * 5
    assert sent() == [True] * 5


def test_periodic_work_watches_and_tells(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    from batches import tasks

    for name in ("ensure_lanes", "ensure_intakes"):
        monkeypatch.setattr(tasks, name, lambda: 0)
    monkeypatch.setattr(alerting, "_robot", Robot())
    make_job(status="paused", pause_reason="budget", budget_limit=1)
    tasks.run_periodic()
    assert "预算用完" in group.contents[0]
