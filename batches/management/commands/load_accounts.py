"""manage.py load_accounts: gateways and accounts from a file."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand
from django.utils.translation import gettext as _

from batches.domain.errors import InvalidInputError
from batches.intake.source import source_of
from batches.services.accounts import load_accounts

from ._actor import shell
from ._intake import REFUSED, say_refused


class Command(BaseCommand):
    help = "Create or change gateways and accounts from a CSV or .xlsx file (all or nothing)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE")
        parser.add_argument(
            "--json", action="store_true", help="one JSON object per gateway and line"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        file: Path = options["file"]
        try:
            loaded = load_accounts(actor=shell(), source=source_of(file.name, file.read_bytes()))
        except (InvalidInputError, OSError) as error:
            say_refused(self, error, as_json=options["json"])
            raise SystemExit(REFUSED) from None
        for gateway in loaded:
            if options["json"]:
                self.stdout.write(json.dumps(asdict(gateway), ensure_ascii=False))
            else:
                self.stdout.write(
                    _("%(gateway_url)s：%(accounts)s 个账号，回调路径 %(callback_path)s")
                    % asdict(gateway)
                )
