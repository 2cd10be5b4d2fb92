"""Run a stand-in gateway on loopback; needs neither PostgreSQL nor Redis."""

from __future__ import annotations

import argparse
import errno
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from batches.simulator.control import refusal_wording
from batches.simulator.gateway import SimulatorOptions
from batches.simulator.server import run


def latency(text: str) -> tuple[float, float]:
    """`50` or `20-80`, in milliseconds, as seconds."""
    least, dash, most = text.partition("-")
    try:
        bounds = float(least) / 1000, float(most if dash else least) / 1000
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form 50 or 20-80") from None
    if not 0 <= bounds[0] <= bounds[1] < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a range of milliseconds")
    return bounds


def per_minute(text: str) -> int:
    """`60` or `60/min`."""
    number = text.removesuffix("/min")
    if not (number.isascii() and number.isdigit() and int(number) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form 60 or 60/min")
    return int(number)


def port(text: str) -> int:
    """A TCP port; 0 takes a free one."""
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)


def wording(text: str) -> str:
    """How a rate refusal is worded."""
    try:
        return refusal_wording(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


class Command(BaseCommand):
    help = "Run a simulated wecomapi gateway: both dialects, limits, callbacks, faults on request."
    # It must start on a machine without a database.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("--port", type=port, required=True, help="0 takes a free one")
        add("--host", default="127.0.0.1")
        add("--latency-ms", type=latency, default=(0.0, 0.0), metavar="A-B",
            help="answer after A to B milliseconds")  # fmt: skip
        add("--limit-account", type=per_minute, default=60, metavar="N/min",
            help="targets per account in any 60 s (60)")  # fmt: skip
        add("--limit-ip", type=per_minute, default=6000, metavar="N/min",
            help="targets per client address in any 60 s (6000)")  # fmt: skip
        add("--no-limits", action="store_true", help="count, but refuse nothing")
        add("--rate-refusal", type=wording, default="http_429", metavar="http_429|CODE",
            help="how a rate refusal is worded (http_429)")  # fmt: skip
        add("--success-code", type=int, default=0, help="the code that means success (0)")
        add("--token", default="", help="the token every call must bring")
        add("--seed", type=int, help="makes latencies and faults repeatable")
        add("--record", type=Path, metavar="FILE",
            help="also append every effect to FILE, and go on from what it holds")  # fmt: skip
        add("--keepalive", type=float, default=75.0, metavar="S",
            help="close an idle connection after S seconds (75)")  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        limited = not options["no_limits"]
        try:
            run(
                SimulatorOptions(
                    latency_seconds=options["latency_ms"],
                    account_per_min=options["limit_account"] if limited else None,
                    ip_per_min=options["limit_ip"] if limited else None,
                    refusal=options["rate_refusal"],
                    success_code=options["success_code"],
                    token=options["token"],
                    seed=options["seed"],
                    record=options["record"],
                ),
                host=options["host"],
                port=options["port"],
                keepalive=options["keepalive"],
                ready=self._say,
            )
        except OSError as error:
            where = f"{options['host']}:{options['port']}"
            if error.errno == errno.EADDRINUSE:
                message = f"{where} is already in use; choose another --port."
            else:
                message = f"cannot run on {where}: {error}"
            raise CommandError(message, returncode=2) from error

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()
