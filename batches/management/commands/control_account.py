"""manage.py control_account: an account's login is back; switch it off or on."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.utils.translation import gettext as _

from batches.domain.errors import BatchesError
from batches.models import Account
from batches.services.accounts import Restored, restore_account, set_account_active

from ._actor import shell
from ._results import fail
from .send_test import find_account


class Command(BaseCommand):
    help = (
        "Says that an account is logged in again (its shards go on), or switches it off or on "
        "for batches: exit 0, also if it was so already; 2 for bad input."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("guid", metavar="GUID")
        parser.add_argument("act", choices=["restore", "enable", "disable"])
        parser.add_argument("--gateway", help="its gateway's address, if several have this guid")
        parser.add_argument("--reason", default="", help="required for disable")
        parser.add_argument("--json", action="store_true", dest="as_json")

    def handle(self, *args: Any, guid: str, act: str, as_json: bool, **options: Any) -> None:
        try:
            done = _act(find_account(guid, options["gateway"]), act, options["reason"])
        except BatchesError as error:
            fail(self, error, as_json=as_json)
        account = done.account
        if as_json:
            self.stdout.write(
                json.dumps(
                    {
                        "guid": account.guid,
                        "gateway_url": account.gateway.base_url,
                        "name": account.name,
                        "is_active": account.is_active,
                        "health": account.health,
                        "changed": done.changed,
                        "resumed_shards": done.shards,
                    },
                    ensure_ascii=False,
                )
            )
            return
        state = _("启用") if account.is_active else _("停用")
        self.stdout.write(
            _("账号 %(name)s（%(guid)s）：%(state)s，%(health)s，%(shards)s 个分片继续。")
            % {
                "name": account,
                "guid": account.guid,
                "state": state,
                "health": account.get_health_display(),
                "shards": done.shards,
            }
        )


def _act(account_id: int, act: str, reason: str) -> Restored:
    if act == "restore":
        return restore_account(account_id=account_id, actor=shell(), reason=reason)
    was = Account.objects.values_list("is_active", flat=True).get(pk=account_id)
    active = act == "enable"
    account = set_account_active(account_id=account_id, actor=shell(), active=active, reason=reason)
    return Restored(account, 0, changed=was is not active)
