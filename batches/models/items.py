"""Items, the calls that carried them, and what a job did minute by minute.

Foreign keys of the hot tables (item, call) carry no database constraint: their rows are
written by one statement each, from the rows they refer to, and a check per row would cost
a lock on the job row for every item.
"""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _l

from batches.domain.states import ITEM_LABELS, ItemState

from .accounts import Account
from .checks import choices, one_of
from .jobs import Job, Shard


class Item(models.Model):
    """One target of a job and what became of it."""

    job = models.ForeignKey(Job, models.DO_NOTHING, db_constraint=False, db_index=False)
    shard = models.ForeignKey(Shard, models.DO_NOTHING, db_constraint=False, db_index=False)
    #: order within the shard, from 1
    seq = models.PositiveIntegerField()
    #: row of the file, the header being row 1
    row_no = models.PositiveIntegerField(_l("行号"))
    target = models.CharField(_l("目标"), max_length=64)
    #: the row's cells, in the order of `Job.columns`
    fields = ArrayField(models.TextField(), default=list)
    state = models.CharField(
        _l("状态"), max_length=10, choices=choices(ITEM_LABELS.items()), db_default="pending"
    )
    attempt = models.PositiveSmallIntegerField(_l("尝试次数"), db_default=0)
    #: a pending item that was refused waits until then
    due_at = models.DateTimeField(null=True)
    #: the latest call that carries this item
    call = models.ForeignKey(
        "batches.Call", models.DO_NOTHING, null=True, db_constraint=False, db_index=False
    )
    submitted_at = models.DateTimeField(_l("提交时间"), null=True)
    #: the gateway took it; confirmation is still to come
    accepted_at = models.DateTimeField(null=True)
    #: since when nobody knows whether it was sent
    in_doubt_at = models.DateTimeField(_l("存疑时间"), null=True)
    settled_at = models.DateTimeField(_l("了结时间"), null=True)
    msg_id = models.CharField(_l("消息标识"), max_length=128, null=True)
    # the last failure
    category = models.CharField(_l("失败分类"), max_length=20, null=True)
    code = models.CharField(_l("错误码"), max_length=40, null=True)
    message = models.CharField(_l("错误信息"), max_length=500, null=True)

    class Meta:
        verbose_name = _l("条目")
        verbose_name_plural = _l("条目")
        constraints = [
            models.UniqueConstraint(fields=["shard", "target"], name="item_unique_target"),
            one_of("state", ItemState, "item_state_known"),
            models.CheckConstraint(
                condition=~Q(state="submitted")
                | (Q(call__isnull=False) & Q(submitted_at__isnull=False)),
                name="item_submitted_has_call",
            ),
            models.CheckConstraint(
                condition=Q(in_doubt_at__isnull=True) | Q(state="submitted"),
                name="item_in_doubt_is_submitted",
            ),
            models.CheckConstraint(
                condition=Q(in_doubt_at__isnull=True) | Q(accepted_at__isnull=True),
                name="item_in_doubt_not_accepted",
            ),
            models.CheckConstraint(
                condition=~Q(state="failed") | Q(category__isnull=False),
                name="item_failed_has_category",
            ),
        ]
        indexes = [
            # claiming: the next items of a shard, in order
            models.Index(
                fields=["shard", "seq"], name="item_pending", condition=Q(state="pending")
            ),
            # failure drill-down: category → code → items, keyset by id
            models.Index(
                fields=["job", "category", "code", "id"],
                name="item_failed",
                condition=Q(state="failed"),
            ),
            # reconciliation queue: what waits for a truth, oldest first. Items in flight are
            # not in it, so the common path never touches this index.
            models.Index(
                fields=["job", "submitted_at", "id"],
                name="item_unconfirmed",
                condition=Q(state="submitted")
                & (Q(in_doubt_at__isnull=False) | Q(accepted_at__isnull=False)),
            ),
            # of these the ones in doubt, apart: a job that waits for callbacks may have a
            # million accepted ones between them
            models.Index(
                fields=["job", "in_doubt_at", "id"],
                name="item_in_doubt",
                condition=Q(in_doubt_at__isnull=False),
            ),
            # callbacks: find the item by the gateway's message id
            models.Index(
                fields=["msg_id"],
                name="item_awaits_callback",
                condition=Q(state="submitted") & Q(msg_id__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.job_id}/{self.target}"


class Call(models.Model):
    """One HTTP request to a gateway, covering 1..50 items of one shard."""

    job = models.ForeignKey(Job, models.DO_NOTHING, db_constraint=False, db_index=False)
    shard = models.ForeignKey(Shard, models.DO_NOTHING, db_constraint=False, db_index=False)
    account = models.ForeignKey(Account, models.DO_NOTHING, db_constraint=False, db_index=False)
    #: the lane turn that made the claim (kept after the lane row is pruned)
    lane_id = models.BigIntegerField()
    item_ids = ArrayField(models.BigIntegerField())
    #: the claim's moment; the request leaves right after its commit
    sent_at = models.DateTimeField(db_default=Now())
    answered_at = models.DateTimeField(null=True)
    #: the sender died or gave up before an answer; a late answer may still come
    lost_at = models.DateTimeField(null=True)
    #: accepted, refused, not_sent, unknown, mixed
    outcome = models.CharField(max_length=8, null=True)
    http_status = models.PositiveSmallIntegerField(null=True)
    category = models.CharField(max_length=20, null=True)
    code = models.CharField(max_length=40, null=True)
    message = models.CharField(max_length=500, null=True)
    duration_ms = models.PositiveIntegerField(null=True)

    class Meta:
        verbose_name = _l("调用")
        verbose_name_plural = _l("调用")
        indexes = [
            # what is in flight: few rows, asked for by shard, account and age; an order that no
            # other index has, so that no other one looks as good to the planner
            models.Index(
                fields=["shard", "lane_id"],
                name="call_in_flight",
                condition=Q(answered_at__isnull=True) & Q(lost_at__isnull=True),
            ),
            # the history of an item
            models.Index(fields=["shard", "id"], name="call_shard"),
        ]

    def __str__(self) -> str:
        return f"call {self.pk}"


class JobMinute(models.Model):
    """What a job did in one minute: charts and rates read this, never the items."""

    job = models.ForeignKey(Job, models.CASCADE, db_constraint=False, db_index=False)
    minute = models.DateTimeField()
    #: sends that were kept; with `returned`, those that a refusal took back, all that left
    sent = models.PositiveIntegerField(default=0)
    confirmed = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    in_doubt = models.PositiveIntegerField(default=0)
    returned = models.PositiveIntegerField(default=0)
    #: outcomes that the breaker counts, and the bad ones of them
    judged = models.PositiveIntegerField(default=0, db_default=0)
    bad = models.PositiveIntegerField(default=0, db_default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "minute"], name="job_minute_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} {self.minute}"
