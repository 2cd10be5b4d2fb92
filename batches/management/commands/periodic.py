"""manage.py periodic: runs the work that is due every few seconds, until it is told to stop."""

from __future__ import annotations

import logging
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.db import close_old_connections, connections

from batches.tasks import run_periodic
from wecom_ops.local.supervisor import repeat_until_stopped

logger = logging.getLogger(__name__)


class Command(BaseCommand):
    help = "Wakes lanes, watches, reconciles, alerts and prunes, every few seconds."
    # A database that is away now is tried again, so nothing is checked up front.
    requires_system_checks: list[str] = []
    requires_migrations_checks = False
    #: what failed in the last round
    _failing = ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--every", type=float, default=5.0, help="seconds between two rounds")

    def handle(self, *_args: Any, **options: Any) -> None:
        repeat_until_stopped(self.once, every=options["every"])

    def once(self) -> None:
        """One round. An outage of PostgreSQL or Redis is told once, and once when it is over."""
        close_old_connections()
        try:
            run_periodic()
        except Exception as error:  # whatever one round meets, the next one is due
            connections.close_all()
            # of several steps it says which, so that one more that fails is told too
            kind = str(error) if isinstance(error, ExceptionGroup) else type(error).__name__
            if kind != self._failing:
                logger.exception("periodic work failed; it is tried again every few seconds")
            self._failing = kind
        else:
            if self._failing:
                logger.info("periodic work runs again")
            self._failing = ""
