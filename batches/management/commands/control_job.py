"""The operator's verbs from a shell: stop, go on, retry, and the limits while a job runs."""

from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand
from django.utils.translation import gettext as _

from batches.domain.errors import BatchesError, InvalidInputError
from batches.domain.problems import Names, Problem
from batches.domain.text import N_
from batches.domain.verbs import Verb
from batches.models import Job
from batches.selectors.report import job_report
from batches.services import jobs

from ._actor import shell
from ._options import add_breaker, add_schedule, breaker_changes, moment
from ._report_text import report_text
from ._results import fail

VERBS = (
    Verb.PAUSE,
    Verb.RESUME,
    Verb.CANCEL,
    Verb.TERMINATE,
    Verb.RETRY_FAILED,
    Verb.RAISE_BUDGET,
    Verb.SET_RATE,
    Verb.SET_HOURS,
    Verb.SET_START,
    Verb.SET_BREAKER,
    Verb.SET_PRIORITY,
)
#: `--to` for a rate without a ceiling
UNLIMITED = "none"


class Command(BaseCommand):
    help = (
        "Does one of the operator's verbs to a job and prints its report: "
        "exit 0; 2 for bad input; 3 where the job's state does not allow it."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("job_id", type=int, metavar="ID")
        parser.add_argument("verb", choices=[verb.value for verb in VERBS])
        parser.add_argument(
            "--to",
            type=_number,
            metavar="N",
            help="raise_budget, set_rate, set_priority: the new value; set_rate also takes none",
        )
        parser.add_argument(
            "--reason", default="", help="required for cancel, terminate and raise_budget"
        )
        parser.add_argument("--category", help="retry_failed: only failures of this category")
        add_schedule(parser)
        add_breaker(parser)
        parser.add_argument("--json", action="store_true", dest="as_json")

    def handle(self, *args: Any, job_id: int, as_json: bool, **options: Any) -> None:
        try:
            act(job_id, Verb(options["verb"]), options)
        except BatchesError as error:
            fail(self, error, as_json=as_json)
        report = job_report(job_id)
        if as_json:
            self.stdout.write(json.dumps(report, ensure_ascii=False))
        else:
            self.stdout.write(report_text(report, gettext=_))


def act(job_id: int, verb: Verb, options: dict[str, Any]) -> Job:
    """The service of a verb with the options that it takes."""
    _refuse_foreign(verb, options)
    common: dict[str, Any] = {"job_id": job_id, "actor": shell(), "reason": options["reason"]}
    match verb:
        case Verb.PAUSE:
            return jobs.pause_job(**common)
        case Verb.RESUME:
            return jobs.resume_job(**common)
        case Verb.CANCEL:
            return jobs.cancel_job(**common)
        case Verb.TERMINATE:
            return jobs.terminate_job(**common)
        case Verb.RETRY_FAILED:
            return jobs.retry_failed(**common, category=options["category"])
        case Verb.RAISE_BUDGET:
            return jobs.raise_budget(**common, to=options["to"])
        case _:
            return _set(verb, options, common)


def _set(verb: Verb, options: dict[str, Any], common: dict[str, Any]) -> Job:
    match verb:
        case Verb.SET_RATE:
            per_min = None if options["to"] == UNLIMITED else options["to"]
            return jobs.set_rate(**common, per_min=per_min)
        case Verb.SET_HOURS:
            opens, closes = options["window"]
            return jobs.set_hours(**common, window_from=opens, window_to=closes)
        case Verb.SET_START:
            return jobs.set_start(**common, start_at=moment(options["start_at"]))
        case Verb.SET_PRIORITY:
            return jobs.set_priority(**common, priority=options["to"])
        case _:
            return jobs.set_breaker(**common, **breaker_changes(options))


_BREAKER = frozenset({Verb.SET_BREAKER})
_TAKEN_BY = {
    "to": frozenset({Verb.RAISE_BUDGET, Verb.SET_RATE, Verb.SET_PRIORITY}),
    "category": frozenset({Verb.RETRY_FAILED}),
    "window": frozenset({Verb.SET_HOURS}),
    "start_at": frozenset({Verb.SET_START}),
    "breaker_streak": _BREAKER,
    "breaker_ratio": _BREAKER,
    "breaker_window": _BREAKER,
    "breaker_min_sample": _BREAKER,
    "breaker_shard_share": _BREAKER,
}
#: verb → the option that it cannot do without
_NEEDED = {
    Verb.RAISE_BUDGET: ("to", "--to N"),
    Verb.SET_RATE: ("to", "--to N"),
    Verb.SET_PRIORITY: ("to", "--to N"),
    Verb.SET_HOURS: ("window", "--window HH:MM-HH:MM"),
    Verb.SET_START: ("start_at", "--start-at ISO"),
}


def _refuse_foreign(verb: Verb, options: dict[str, Any]) -> None:
    """Raises `InvalidInputError` for an option of another verb, or one that is missing."""
    for option, owners in _TAKEN_BY.items():
        if options[option] is not None and verb not in owners:
            raise InvalidInputError(
                Problem(
                    "foreign_option",
                    N_("--%(option)s 只用于 %(verb)s。"),
                    {"option": option.replace("_", "-"), "verb": Names(sorted(owners))},
                )
            )
    option, shown = _NEEDED.get(verb, ("", ""))
    lacking = bool(option) and options[option] is None
    if lacking or (options["to"] == UNLIMITED and verb is not Verb.SET_RATE):
        raise InvalidInputError(
            Problem(
                "option_required",
                N_("%(verb)s 需要 %(option)s。"),
                {"verb": verb.value, "option": shown},
            )
        )


def _number(text: str) -> int | str:
    if text == UNLIMITED:
        return text
    try:
        return int(text)
    except ValueError:
        raise ArgumentTypeError(_("--to 要写成整数，现在是“%(text)s”") % {"text": text}) from None
