"""manage.py stack: lanes, control worker, periodic work and web as one supervised set."""

from __future__ import annotations

import os
import signal
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from wecom_ops.local.files import port_is_free
from wecom_ops.local.static import collect_static_if_stale
from wecom_ops.local.supervisor import Service, Supervisor


def services(*, lanes: int, web: bool) -> list[Service]:
    """The stack's processes; all stops together stay under ten seconds.

    Workers stop first and the web last: while lanes drain, callbacks still find somebody to answer.
    """
    manage: tuple[str | Path, ...] = (sys.executable, settings.BASE_DIR / "manage.py")
    found = [
        Service(
            name=f"lane-{number}",
            command=(*manage, "rqworker", "lanes", "--worker-class", "batches.worker.LaneWorker"),
            # One signal only: RQ takes a second one for a cold stop, in the middle of a turn.
            ladder=((signal.SIGTERM, 8.0),),
        )
        for number in range(1, lanes + 1)
    ]
    found += [
        Service(
            name="control",
            command=(*manage, "rqworker", "control"),
            # The second one is RQ's cold stop: it ends a task that takes too long.
            ladder=((signal.SIGTERM, 6.0), (signal.SIGTERM, 2.0)),
        ),
        Service(name="periodic", command=(*manage, "periodic"), ladder=((signal.SIGTERM, 4.0),)),
    ]
    if web:
        found.append(
            Service(
                name="web",
                command=(
                    *(sys.executable, "-m", "gunicorn", "wecom_ops.wsgi:application"),
                    *("--bind", f"127.0.0.1:{settings.PORT}", "--no-control-socket"),
                    *("--worker-class", "gthread", "--workers", "2", "--threads", "4"),
                    *("--graceful-timeout", "1", "--log-level", "warning"),
                ),
                stop_stage=1,
                ladder=((signal.SIGTERM, 1.5),),
            )
        )
    return found


class Command(BaseCommand):
    help = "Runs the whole stack with the servers that DATABASE_URL and REDIS_URL name."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--lanes", type=int, default=1, help="lane processes (default 1)")
        parser.add_argument("--no-web", action="store_true", help="workers only")

    def handle(self, *_args: Any, **options: Any) -> None:
        web = not options["no_web"]
        if options["lanes"] < 0:
            raise CommandError("--lanes must not be negative.")
        if web:
            if not port_is_free(settings.PORT):
                raise CommandError(f"Port {settings.PORT} is taken; set PORT to a free one.")
            if not settings.DEBUG:
                collect_static_if_stale()
        env = {**os.environ, "PYTHONUNBUFFERED": "1"}
        env.setdefault("DJANGO_SETTINGS_MODULE", "wecom_ops.settings")
        Supervisor(services(lanes=options["lanes"], web=web), env=env, cwd=settings.BASE_DIR).run()
