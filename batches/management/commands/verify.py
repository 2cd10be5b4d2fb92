"""Recount everything and say what does not agree."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from typing import Any, NoReturn

from django.core.management.base import BaseCommand
from django.db import connection, transaction
from django.utils.translation import gettext as _

from batches.models import Job
from batches.selectors.verify import GRACE, Verification, verify

from ._intake import REFUSED

#: a week; a lane that died earlier has long been taken over
GRACE_MAX = 7 * 24 * 3600


class Command(BaseCommand):
    help = (
        "Recounts everything from the items, in one snapshot, and compares it with the counters, "
        "the budgets and the laws: exit 0, or 1 with a list, or 2 if it cannot. Safe while lanes "
        "are at work."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--job", type=int, help="only this job")
        parser.add_argument(
            "--grace",
            type=int,
            default=GRACE,
            help="seconds after which a dead lane's work should have been taken over",
        )
        parser.add_argument("--json", action="store_true", dest="as_json")

    def handle(self, *args: Any, as_json: bool, **options: Any) -> None:
        job_id, grace = options["job"], options["grace"]
        if job_id is not None and not Job.objects.filter(pk=job_id).exists():
            self._refuse(_("没有编号为 %(id)s 的作业。") % {"id": job_id}, as_json=as_json)
        if not 0 <= grace <= GRACE_MAX:
            text = _("宽限秒数要在 0 到 %(most)s 之间。") % {"most": GRACE_MAX}
            self._refuse(text, as_json=as_json)
        result = _in_one_snapshot(job_id, grace)
        if as_json:
            self.stdout.write(json.dumps(_as_json(result), ensure_ascii=False, default=str))
        else:
            self._say(result)
        if not result.ok:
            sys.exit(1)

    def _refuse(self, text: str, *, as_json: bool) -> NoReturn:
        self.stderr.write(text)
        if as_json:
            self.stdout.write(json.dumps({"error": text}, ensure_ascii=False))
        sys.exit(REFUSED)

    def _say(self, result: Verification) -> None:
        for finding in result.findings:
            self.stdout.write(_(finding.text) % finding.params)
        text = (
            _("已核对 %(jobs)s 个作业、%(shards)s 个分片、%(items)s 条、%(calls)s 次调用、"
              "%(accounts)s 个账号：没有偏差。")
            if result.ok
            else _("已核对 %(jobs)s 个作业、%(shards)s 个分片、%(items)s 条、%(calls)s 次调用、"
                   "%(accounts)s 个账号：发现 %(count)s 处偏差。")
        )  # fmt: skip
        self.stdout.write(text % {**result.checked, "count": len(result.findings)})


def _in_one_snapshot(job_id: int | None, grace: int) -> Verification:
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute("set transaction isolation level repeatable read, read only")
        return verify(job_id=job_id, grace=grace)


def _as_json(result: Verification) -> dict[str, Any]:
    return {
        "ok": result.ok,
        "checked": dict(result.checked),
        "findings": [
            {"code": finding.code, "text": _(finding.text) % finding.params, **finding.params}
            for finding in result.findings
        ],
    }
