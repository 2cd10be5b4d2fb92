"""Tells a group robot of new alerts: all of them in one message, later rather than never."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from django.conf import settings
from django.utils import translation

from batches.domain.outcomes import NotSent, Unknown
from batches.gateways.base import HttpRequest
from batches.store import alerts as store

from .alert_text import message
from .sync_transport import post
from .transport import Answer

log = logging.getLogger(__name__)

#: seconds between two messages, whoever sends them: well within the robot's 20 a minute
SPACING = 5.0
#: alerts that one message may speak of
MOST = 2_000
TIMEOUT = 5.0
#: seconds; the wait after a failure doubles from here
RETRY_FIRST = 10.0
RETRY_MOST = 300.0
#: what the robot says when it was asked too often, and how long it wants to be left alone
TOO_OFTEN = 45009
TOO_OFTEN_WAIT = 60.0
#: its address is wrong: only a person mends that, with a restart
BAD_ADDRESS = 93000
BAD_ADDRESS_WAIT = 600.0


@dataclass(frozen=True, slots=True)
class _Failure:
    """`what` is for the log; it never holds the robot's address, which is a secret."""

    what: str
    least_wait: float = 0.0


class Robot:
    """Where deliveries stand; one per process, and only a hint: the truth is in the alerts."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._not_before = 0.0
        self._failures = 0
        self._told = ""

    def deliver(self) -> int:
        """Tell of what is new, if there is a robot and it is time; returns how many alerts.

        Only an answer that says so counts as told. A message whose answer was lost is told
        again: better twice than never. Never raises for what the robot does.
        """
        url: str = settings.ALERT_WEBHOOK_URL
        if not url or self._clock() < self._not_before:
            return 0
        # 1. anything new, 2. alone, 3. not too soon after the last, 4. send, 5. mark
        if not store.unsent_alerts(most=1):
            return 0
        with store.alert_turn() as mine:
            if not mine:
                return 0
            ago = store.sent_ago()
            if ago is not None and ago < SPACING:
                return 0
            alerts = store.unsent_alerts(most=MOST)
            if not alerts:
                return 0
            with translation.override(settings.LANGUAGE_CODE):
                content = message(
                    alerts, public_url=settings.PUBLIC_URL, label=settings.ENVIRONMENT_LABEL
                )
            if (failure := _send(url, content)) is not None:
                self._back_off(failure)
                return 0
            store.mark_sent([alert.id for alert in alerts])
        if self._told:
            log.info("alerts reach the robot again")
        self._failures, self._told = 0, ""
        return len(alerts)

    def _back_off(self, failure: _Failure) -> None:
        wait = min(RETRY_MOST, RETRY_FIRST * 2 ** min(self._failures, 10))
        self._failures += 1
        self._not_before = self._clock() + max(wait, failure.least_wait)
        if failure.what != self._told:
            self._told = failure.what
            log.warning("alerts do not reach the robot (%s); they are kept", failure.what)


def _send(url: str, content: str) -> _Failure | None:
    """One request; None once the robot has taken it."""
    body = json.dumps(
        {"msgtype": "markdown", "markdown": {"content": content}}, ensure_ascii=False
    ).encode()
    headers = {"Content-Type": "application/json; charset=utf-8"}
    answer = post(HttpRequest("POST", url, headers, body), timeout=TIMEOUT)
    match answer:
        case NotSent(category=category) | Unknown(category=category):
            return _Failure(str(category))
        case Answer(status=429):
            return _Failure("HTTP 429", TOO_OFTEN_WAIT)
        case Answer(status=status) if status != 200:
            return _Failure(f"HTTP {status}")
        case Answer(body=said):
            return _judge(said)


def _judge(body: bytes) -> _Failure | None:
    try:
        data = json.loads(body)
    except ValueError:
        data = None
    code = data.get("errcode") if isinstance(data, dict) else None
    if not isinstance(code, int) or isinstance(code, bool):
        return _Failure("an answer that is not the robot's")
    if code == 0:
        return None
    waits = {TOO_OFTEN: TOO_OFTEN_WAIT, BAD_ADDRESS: BAD_ADDRESS_WAIT}
    return _Failure(f"errcode {code}", waits.get(code, 0.0))


_robot = Robot()


def deliver_alerts() -> int:
    """This process's robot; see `Robot.deliver`."""
    return _robot.deliver()
