"""Print the report of one job."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.utils.translation import gettext as _

from batches.domain.errors import InvalidInputError
from batches.selectors.report import job_report

from ._report_text import report_text
from ._results import fail


class Command(BaseCommand):
    help = "Prints the report of a job: exit 0; 2 if there is no such job."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("job_id", type=int, metavar="ID")
        parser.add_argument("--json", action="store_true", dest="as_json")

    def handle(self, *args: Any, job_id: int, as_json: bool, **options: Any) -> None:
        try:
            report = job_report(job_id)
        except InvalidInputError as error:
            fail(self, error, as_json=as_json)
        if as_json:
            self.stdout.write(json.dumps(report, ensure_ascii=False))
        else:
            self.stdout.write(report_text(report, gettext=_))
