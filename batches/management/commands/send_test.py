"""manage.py send_test: one text through one account, now."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand
from django.utils.translation import gettext as _

from batches.domain.addresses import normal_url
from batches.domain.errors import BatchesError, InvalidInputError
from batches.domain.problems import Names, Problem
from batches.domain.text import N_
from batches.models import Account
from batches.services.test_send import send_test

from ._actor import shell
from ._results import fail

NOT_ACCEPTED = 3


class Command(BaseCommand):
    help = (
        "Sends one text through one account, within its online reserve and never repeated: exit 0 "
        "if the gateway accepted it; 2 for bad input; 3 if limited, refused, not sent or unknown."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--guid", required=True, help="the account")
        parser.add_argument("--gateway", help="its gateway's address, if several have this guid")
        parser.add_argument("--to", required=True, help="the customer's or group's id")
        parser.add_argument("--content", required=True, help="the text, without placeholders")
        parser.add_argument("--json", action="store_true", dest="as_json")

    def handle(self, *args: Any, as_json: bool, **options: Any) -> None:
        try:
            account_id = find_account(options["guid"], options["gateway"])
            result = send_test(
                account_id=account_id,
                target=options["to"],
                content=options["content"],
                actor=shell(),
            )
        except BatchesError as error:
            fail(self, error, as_json=as_json)
        if as_json:
            self.stdout.write(json.dumps(asdict(result), ensure_ascii=False))
        else:
            self.stdout.write(
                _("%(message)s（%(ms)s 毫秒）")
                % {"message": result.message, "ms": result.duration_ms}
            )
        if result.outcome != "accepted":
            sys.exit(NOT_ACCEPTED)


def find_account(guid: str, gateway_url: str | None) -> int:
    """The account's id. Raises InvalidInputError if there is none, or more than one."""
    found = Account.objects.filter(guid=guid).select_related("gateway").order_by("pk")
    if gateway_url is not None:
        found = found.filter(gateway__base_url=normal_url(gateway_url))
    accounts = list(found)
    if len(accounts) == 1:
        return accounts[0].pk
    if not accounts:
        raise InvalidInputError(
            Problem("unknown_account", N_("没有标识为“%(guid)s”的账号。"), {"guid": guid})
        )
    raise InvalidInputError(
        Problem(
            "account_ambiguous",
            N_("有多个网关都有账号“%(guid)s”，请用 --gateway 指明其中一个：%(urls)s。"),
            {"guid": guid, "urls": Names(a.gateway.base_url for a in accounts)},
        )
    )
