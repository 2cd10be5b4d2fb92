"""Pause, resume, cancel, terminate, retry, raise the budget: the operator's verbs from a shell."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.utils.translation import gettext as _

from batches.domain.errors import BatchesError, InvalidInputError
from batches.domain.problems import Problem
from batches.domain.text import N_
from batches.domain.verbs import Verb
from batches.models import Job
from batches.selectors.report import job_report
from batches.services import jobs

from ._report_text import report_text
from ._results import fail

VERBS = (
    Verb.PAUSE,
    Verb.RESUME,
    Verb.CANCEL,
    Verb.TERMINATE,
    Verb.RETRY_FAILED,
    Verb.RAISE_BUDGET,
)


class Command(BaseCommand):
    help = (
        "Does one of the operator's verbs to a job and prints its report: "
        "exit 0; 2 for bad input; 3 where the job's state does not allow it."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("job_id", type=int, metavar="ID")
        parser.add_argument("verb", choices=[verb.value for verb in VERBS])
        parser.add_argument("--to", type=int, help="raise_budget: the new limit of sends")
        parser.add_argument(
            "--reason", default="", help="required for cancel, terminate and raise_budget"
        )
        parser.add_argument("--category", help="retry_failed: only failures of this category")
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
    reason: str = options["reason"]
    _refuse_foreign(verb, options)
    match verb:
        case Verb.PAUSE:
            return jobs.pause_job(job_id=job_id, actor=None, reason=reason)
        case Verb.RESUME:
            return jobs.resume_job(job_id=job_id, actor=None, reason=reason)
        case Verb.CANCEL:
            return jobs.cancel_job(job_id=job_id, actor=None, reason=reason)
        case Verb.TERMINATE:
            return jobs.terminate_job(job_id=job_id, actor=None, reason=reason)
        case Verb.RETRY_FAILED:
            return jobs.retry_failed(
                job_id=job_id, actor=None, reason=reason, category=options["category"]
            )
        case _:
            return jobs.raise_budget(job_id=job_id, actor=None, reason=reason, to=options["to"])


_OWN = {"to": Verb.RAISE_BUDGET, "category": Verb.RETRY_FAILED}


def _refuse_foreign(verb: Verb, options: dict[str, Any]) -> None:
    """Raises `InvalidInputError` for an option that another verb takes, or a missing --to."""
    for option, owner in _OWN.items():
        if options[option] is not None and verb is not owner:
            raise InvalidInputError(
                Problem(
                    "foreign_option",
                    N_("--%(option)s 只用于 %(verb)s。"),
                    {"option": option, "verb": owner.value},
                )
            )
    if verb is Verb.RAISE_BUDGET and options["to"] is None:
        raise InvalidInputError(
            Problem("option_required", N_("%(verb)s 需要 --to N。"), {"verb": verb.value})
        )
