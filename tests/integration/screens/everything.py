"""Rows for every page at once, all their words in one script: Latin or Chinese."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import Group, User
from django.utils import timezone

from batches.domain.alerts import ALERTS
from batches.domain.categories import CATEGORIES, IN_DOUBT
from batches.domain.event_kinds import EVENT_LABELS
from batches.domain.states import JobStatus, PauseReason, ShardStatus
from batches.models import Account, Alert, Event, Item, Job, Rejection, Upload
from tests.factories import ShardSpec, items_of, make_account, make_gateway, make_job

#: categories of items that definitely failed
FAILURES = [category for category in CATEGORIES if category not in IN_DOUBT]

EMPTY = "ID 为空。请补上，或删除这一行。"
REPORT: dict[str, Any] = {
    "phase": "done",
    "encoding": "utf-8",
    "delimiter": ",",
    "header_row": 1,
    "rows": 3,
    "valid": 2,
    "rejected": 1,
    "shards": 1,
    "accounts_total": 1,
    "by_reason": [{"code": "id_empty", "text": EMPTY, "params": {}, "count": 1, "example_row": 4}],
    "problems": [
        {
            "code": "column_missing",
            "text": "找不到“%(label)s”列。找到的列：%(columns)s。"
            "这一列的表头可以是：%(aliases)s。请改正表头后重新上传，或指定对应的列。",
            "params": {
                "label": {"term": "客户 ID"},
                "columns": {"names": ["1", "2"]},
                "aliases": {"names": ["3", "4"]},
            },
        }
    ],
    "warnings": [
        {
            "code": "ids_rounded",
            "text": "%(count)s 个长 ID 的末位全是 0，可能被 Excel 改动过。"
            "请与原始数据核对后再启动。",
            "params": {"count": 2},
        }
    ],
    "request": {},
}


@dataclass(frozen=True)
class Everything:
    account: Account
    signed_out: Account
    running: Job
    jobs: dict[str, Job]


def build(*, latin: bool, operator: User) -> Everything:
    """Jobs in every state and paused for every reason, all failures, events and alerts."""
    made = _Maker(latin=latin)
    jobs = made.jobs()
    running = jobs["running"]
    made.events(running, operator)
    made.alerts(running)
    made.spell(operator)
    signed_out = made.accounts[2]
    return Everything(account=made.account, signed_out=signed_out, running=running, jobs=jobs)


class _Maker:
    def __init__(self, *, latin: bool) -> None:
        self.numbers = itertools.count(1001)
        self.word = "Shop" if latin else "门店"
        self.gateway = make_gateway(name=self.word)
        self.account = self._account(online_reserve_per_min=10, throttle=0.5)
        later = timezone.now() + timedelta(hours=1)
        self.accounts = [
            self.account,
            self._account(is_active=False),
            self._account(health="credential", health_note=self.word),
            self._account(hold_until=later, hold_reason="gateway"),
            self._account(gateway=make_gateway(name=self.word, is_active=False)),
            self._account(),
        ]

    def _account(self, **columns: Any) -> Account:
        words = {"gateway": self.gateway, "name": self.word, "guid": str(next(self.numbers))}
        return make_account(**(words | columns))

    def _job(self, *specs: ShardSpec, **columns: Any) -> Job:
        name = "{name}" if self.word.isascii() else "{姓名}"
        words = {
            "name": self.word,
            "params": {"content": f"{self.word} {name}"},
            "columns": ["1", "2", self.word],
        }
        shards = specs or [ShardSpec(pending=3, confirmed=1, failed=1, account=self.account)]
        return make_job(shards=shards, **(words | columns))

    def jobs(self) -> dict[str, Job]:
        found = {"running": self._running()}
        sample = {
            "row_no": 2,
            "account": "1",
            "account_name": self.word,
            "target": "2",
            "content": self.word,
            "tags": ["3"],
        }
        report = REPORT | {
            "samples": [sample],
            "accounts": [{"account": "1", "name": self.word, "items": 2, "shards": 1}],
        }
        for status in JobStatus:
            if status in (JobStatus.PAUSED, JobStatus.RUNNING):
                continue
            doubt = [ShardSpec(in_doubt=1, accepted=1, confirmed=1, account=self.account)]
            several = status in (JobStatus.VERIFYING, JobStatus.TERMINATED)
            upload = Upload.objects.create(name="1.csv", size=2048, sha256="0" * 64)
            columns: dict[str, Any] = {"status": status, "intake": report, "upload": upload}
            if status is JobStatus.PREPARING:
                columns |= {"intake": {"phase": "reading", "progress_rows": 1}}
            job = self._job(*(doubt if several else []), **columns, rejected_rows=1)
            Rejection.objects.create(
                job=job,
                row_no=4,
                code="id_empty",
                column="1",
                text=EMPTY,
            )
            found[status.value] = job
        for reason in PauseReason:
            found[f"paused {reason}"] = self._job(
                status=JobStatus.PAUSED, pause_reason=reason, budget_limit=9, stages=[2, 5]
            )
        found["held"] = self._job(
            *(ShardSpec(pending=2, account=account) for account in self.accounts[1:])
        )
        for account in self.accounts[1:]:
            found[f"held {account.pk}"] = self._job(ShardSpec(pending=2, account=account))
        found["scheduled"] = self._job(start_at=timezone.now() + timedelta(hours=2))
        return found

    def _running(self) -> Job:
        """With shards stopped for each reason, and items failed in each category."""
        stopped = [
            ShardSpec(pending=1, account=account, status=ShardStatus.PAUSED, reason=reason)
            for account, reason in zip(self.accounts, PauseReason, strict=False)
        ]
        failed = [
            ShardSpec(failed=1, pending=1, category=category, code="500", account=account)
            for category, account in zip(FAILURES, self._many(len(FAILURES)), strict=True)
        ]
        doubt = ShardSpec(pending=2, inflight=1, in_doubt=3, accepted=1, account=self._account())
        job = self._job(doubt, *stopped, *failed, budget_limit=100, stages=[50])
        old = timezone.now() - timedelta(minutes=30)
        job.shards.filter(ordinal=1).update(last_advanced_at=old)
        Job.objects.filter(pk=job.pk).update(started_at=old)
        return job

    def _many(self, count: int) -> list[Account]:
        return [self._account() for _ in range(count)]

    def events(self, job: Job, operator: User) -> None:
        item = items_of(job)[0]
        numbers = ("inflight", "stage", "calls", "retried", "total")
        changes = (
            {"before": {"rate_limit_per_min": 5}, "after": {"rate_limit_per_min": None}},
            {"before": {"budget_limit": 5}, "after": {"budget_limit": 9}},
            *({name: 3} for name in numbers),
        )
        for count, kind in enumerate(EVENT_LABELS):
            Event.objects.create(
                kind=kind,
                job=None if kind.startswith("account") else job,
                account=self.account if kind.startswith("account") else None,
                item_id=item.pk if kind.startswith("item") else None,
                shard_ordinal=1 if kind.startswith("shard") else None,
                actor=operator if count % 2 else None,
                actor_name="1001" if count % 2 else "",
                reason=self.word,
                data=changes[count % len(changes)],
            )

    def alerts(self, job: Job) -> None:
        params = {"accounts": ["1", "2"], "account": "1", "gateway": self.word}
        params |= dict.fromkeys(("count", "used", "shards", "jobs", "minutes"), 2)
        for closed_at in (None, timezone.now()):
            for kind, said in ALERTS.items():
                of_job = kind.startswith("job")
                Alert.objects.create(
                    key=f"{kind} {closed_at}",
                    kind=kind,
                    job=job if of_job else None,
                    account=None if of_job else self.account,
                    text=said.text,
                    params=params,
                    closed_at=closed_at,
                )

    def spell(self, operator: User) -> None:
        """What the factories and the migrations word in Chinese or English."""
        Item.objects.update(fields=["1", "2", self.word])
        Item.objects.filter(message__isnull=False).update(message=self.word)
        doubtful = Item.objects.filter(in_doubt_at__isnull=False).order_by("id")
        for item, category in zip(doubtful, sorted(IN_DOUBT), strict=False):
            Item.objects.filter(pk=item.pk).update(category=category)
        for group in Group.objects.all():
            Group.objects.filter(pk=group.pk).update(name=f"{self.word} {group.pk}")
        operator.groups.add(*Group.objects.all())
