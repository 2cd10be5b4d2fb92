"""Options for the limits of a job, the same for every command that takes them."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from datetime import datetime, time
from typing import Any

from django.utils.translation import gettext as _

Hours = tuple[time | None, time | None]
ALL_DAY: Hours = (None, None)


def add_schedule(parser: ArgumentParser) -> None:
    """`--start-at` and `--window`, in the installation's time zone unless an offset is given."""
    parser.add_argument(
        "--start-at", type=start, metavar="ISO", help="nothing is sent before; 'now' for at once"
    )
    parser.add_argument(
        "--window", type=hours, metavar="HH:MM-HH:MM", help="allowed hours; 'all' for all day"
    )


def add_breaker(parser: ArgumentParser) -> None:
    """The thresholds of the breaker; what is left out stays, or takes its default."""
    parser.add_argument(
        "--breaker-streak", type=int, metavar="N", help="bad outcomes in a row that stop a shard"
    )
    parser.add_argument(
        "--breaker-ratio", type=float, metavar="X", help="share of bad outcomes that stops the job"
    )
    parser.add_argument(
        "--breaker-window", type=int, metavar="N", help="latest outcomes that the share is taken of"
    )
    parser.add_argument(
        "--breaker-min-sample", type=int, metavar="N", help="fewest outcomes for a share"
    )
    parser.add_argument(
        "--breaker-shard-share",
        type=float,
        metavar="X",
        help="share of stopped shards that stops the job",
    )


def breaker_changes(options: dict[str, Any]) -> dict[str, Any]:
    """The thresholds that were given, by the names of `Thresholds`."""
    names = ("streak", "ratio", "window", "min_sample", "shard_share")
    return {name: value for name in names if (value := options[f"breaker_{name}"]) is not None}


def hours(text: str) -> Hours:
    if text.strip() == "all":
        return ALL_DAY
    opens, _dash, closes = text.partition("-")
    try:
        return time.fromisoformat(opens.strip()), time.fromisoformat(closes.strip())
    except ValueError:
        raise ArgumentTypeError(
            _("时段要写成 HH:MM-HH:MM，例如 09:00-21:30，或者 all；现在是“%(text)s”")
            % {"text": text}
        ) from None


def start(text: str) -> datetime | str:
    """A moment, or the word `now`."""
    if text.strip() == "now":
        return "now"
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        raise ArgumentTypeError(
            _("时间要写成 ISO 8601，例如 2026-05-01T09:30，或者 now；现在是“%(text)s”")
            % {"text": text}
        ) from None


def moment(value: datetime | str | None) -> datetime | None:
    """The start as a service takes it: None is at once."""
    return value if isinstance(value, datetime) else None
