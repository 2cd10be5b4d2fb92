"""Alerts reach a group robot: one message, within its limits, never lost, its key never told."""

from __future__ import annotations

import json
import re
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone, translation

from batches.domain.alerts import ALERTS, CREDENTIAL
from batches.engine import alert as alerting
from batches.engine.alert import Robot
from batches.engine.alert_text import MOST_BYTES, message
from batches.models import Job
from batches.store import alerts as store
from batches.store.queries import sql
from tests.factories import make_account, make_job, other_connection

from .robot import Group, earlier, make_alert, sent

pytestmark = pytest.mark.django_db


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
