"""What the tests of telling share: a group's robot that answers as told, and alerts to tell."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from django.utils import timezone

from batches.domain.alerts import ALERTS, NO_LANE
from batches.models import Alert

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


@contextlib.contextmanager
def listening_group() -> Iterator[Group]:
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
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Clock:
    """Seconds, as far as the test lets them pass."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


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
