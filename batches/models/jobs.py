"""Job, shard, item, call: what is to be done, and what became of every target.

Foreign keys of the hot tables (item, call) carry no database constraint: their rows are
written by one statement each, from the rows they refer to, and a check per row would cost
a lock on the job row for every item.
"""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _l

from batches.domain.states import (
    ITEM_LABELS,
    JOB_LABELS,
    PAUSE_LABELS,
    SHARD_LABELS,
    ItemState,
    JobStatus,
    ShardStatus,
)

from .accounts import Account
from .checks import Rising, choices, one_of
from .files import Upload


class ConfirmPolicy(models.TextChoices):
    """What proves that an accepted send took effect."""

    RESPONSE = "response", _l("以应答为准")
    CALLBACK = "callback", _l("等待回调")
    LOOKUP = "lookup", _l("主动查询")
    MANUAL = "manual", _l("人工核实")


class BadRows(models.TextChoices):
    """What a bad or duplicate row does to its file."""

    REFUSE = "refuse", _l("有问题就整个拒绝")
    SKIP = "skip", _l("跳过有问题的行")


class Job(models.Model):
    """One submission as a whole; its totals are sums over its shards."""

    name = models.CharField(_l("名称"), max_length=200)
    action = models.CharField(_l("动作"), max_length=40)
    params = models.JSONField(_l("参数"), default=dict)
    status = models.CharField(
        _l("状态"), max_length=12, choices=choices(JOB_LABELS.items()), default=JobStatus.PREPARING
    )
    pause_reason = models.CharField(
        _l("暂停原因"), max_length=12, blank=True, default="", choices=choices(PAUSE_LABELS.items())
    )
    #: bumped by every verb and every change of status; a POST carries the one it saw
    version = models.PositiveIntegerField(default=0)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, verbose_name=_l("创建者")
    )
    created_at = models.DateTimeField(_l("创建时间"), db_default=Now(), editable=False)
    started_at = models.DateTimeField(_l("开始时间"), null=True)
    finished_at = models.DateTimeField(_l("结束时间"), null=True)
    priority = models.SmallIntegerField(_l("优先级"), default=0)

    # --- intake ---
    upload = models.ForeignKey(Upload, models.SET_NULL, null=True, verbose_name=_l("文件"))
    bad_rows = models.CharField(
        _l("问题行"), max_length=6, choices=BadRows.choices, default=BadRows.REFUSE
    )
    #: header cells of the file, in file order; `Item.fields` has one cell for each
    columns = models.JSONField(default=list)
    #: canonical key (account, target, name, tags) → index into `columns`
    mapping = models.JSONField(default=dict)
    #: what intake found: encoding, separator, counts, progress, problems (see `intake.report`)
    intake = models.JSONField(default=dict)
    total = models.PositiveIntegerField(_l("条目数"), default=0)
    rejected_rows = models.PositiveIntegerField(_l("未导入行数"), default=0)
    #: digest of the submission (or of the caller's idempotency key); NULL once the submission
    #: came to nothing (rejected, discarded before its start), so that it can be made again
    submission_key = models.CharField(max_length=64, null=True, unique=True)
    #: why the same submission was run again on purpose
    rerun_reason = models.CharField(max_length=300, blank=True, default="")

    # --- limits ---
    confirm_policy = models.CharField(
        _l("确认方式"),
        max_length=10,
        choices=ConfirmPolicy.choices,
        default=ConfirmPolicy.RESPONSE,
    )
    #: most sends of this job; NULL = no limit but the number of items
    budget_limit = models.PositiveIntegerField(_l("预算"), null=True)
    budget_used = models.PositiveIntegerField(_l("已用预算"), default=0)
    #: cumulative checkpoints of sends, strictly rising; `stages_passed` of them are confirmed
    stages = ArrayField(models.PositiveIntegerField(), default=list, blank=True)
    stages_passed = models.PositiveSmallIntegerField(default=0)
    rate_limit_per_min = models.PositiveIntegerField(_l("作业速率上限（条/分）"), null=True)
    #: virtual schedule of the job's own rate ceiling
    rate_at = models.DateTimeField(null=True)
    max_attempts = models.PositiveSmallIntegerField(_l("最多尝试次数"), default=5)
    #: targets per call, where content and gateway allow more than one
    call_size = models.PositiveSmallIntegerField(_l("每次请求的目标数"), default=1)
    #: nothing is sent before; a start missed by too much asks a person
    start_at = models.DateTimeField(_l("定时开始"), null=True)
    #: allowed hours in the installation's time zone; both or none; may span midnight
    window_from = models.TimeField(_l("允许时段从"), null=True)
    window_to = models.TimeField(_l("允许时段到"), null=True)

    # --- breaker ---
    #: consecutive bad outcomes that stop one shard
    breaker_streak = models.PositiveSmallIntegerField(_l("分片连续失败上限"), default=10)
    #: share of bad outcomes among the last `breaker_window` that stops the job
    breaker_ratio = models.FloatField(_l("作业失败率上限"), default=0.5)
    breaker_window = models.PositiveIntegerField(_l("失败率统计条数"), default=200)
    breaker_min_sample = models.PositiveIntegerField(_l("失败率最少样本"), default=50)
    #: share of stopped shards that stops the job
    breaker_shard_share = models.FloatField(_l("熔断分片占比上限"), default=0.5)
    #: the last resume; outcomes before it are forgiven
    breaker_from = models.DateTimeField(null=True, editable=False)

    class Meta:
        verbose_name = _l("作业")
        verbose_name_plural = _l("作业")
        constraints = [
            one_of("status", JobStatus, "job_status_known"),
            models.CheckConstraint(
                condition=Q(budget_limit__isnull=True) | Q(budget_used__lte=F("budget_limit")),
                name="job_budget_never_over",
            ),
            models.CheckConstraint(
                condition=Q(rate_limit_per_min__isnull=True) | Q(rate_limit_per_min__gte=1),
                name="job_rate_positive",
            ),
            models.CheckConstraint(
                condition=Q(max_attempts__gte=1) & Q(max_attempts__lte=20),
                name="job_max_attempts_range",
            ),
            models.CheckConstraint(
                condition=Q(budget_limit__isnull=True) | Q(budget_limit__gte=1),
                name="job_budget_positive",
            ),
            models.CheckConstraint(condition=Rising("stages"), name="job_stages_rise"),
            models.CheckConstraint(
                condition=Q(call_size__gte=1) & Q(call_size__lte=50), name="job_call_size_range"
            ),
            models.CheckConstraint(
                condition=Q(priority__gte=-100) & Q(priority__lte=100), name="job_priority_range"
            ),
            models.CheckConstraint(
                condition=Q(window_from__isnull=True, window_to__isnull=True)
                | (
                    Q(window_from__isnull=False, window_to__isnull=False)
                    & ~Q(window_from=F("window_to"))
                ),
                name="job_window_both_or_none",
            ),
            models.CheckConstraint(
                condition=Q(breaker_streak__gte=1)
                & Q(breaker_ratio__gt=0)
                & Q(breaker_ratio__lte=1)
                & Q(breaker_window__gte=1)
                & Q(breaker_min_sample__gte=1)
                & Q(breaker_min_sample__lte=F("breaker_window"))
                & Q(breaker_shard_share__gt=0)
                & Q(breaker_shard_share__lte=1),
                name="job_breaker_range",
            ),
            models.CheckConstraint(
                condition=Q(pause_reason="") | Q(status__in=["paused", "pausing"]),
                name="job_pause_reason_only_paused",
            ),
        ]
        indexes = [
            models.Index(fields=["status", "-id"], name="job_status"),
        ]
        permissions = [
            ("operate_job", _l("可以创建、启动、暂停、继续作业")),
            ("cancel_job", _l("可以取消作业")),
            ("approve_job", _l("可以调整预算、确认放量")),
            ("terminate_job", _l("可以强制终止作业")),
            ("reconcile_item", _l("可以核实存疑条目")),
        ]

    def __str__(self) -> str:
        return self.name


class Shard(models.Model):
    """One account's items of a job, or a hash slice of them; fixed when the job is created.

    `pending` counts items not yet settled, in flight included: a claim does not touch this
    row. Items in flight are the targets of calls without an answer (`Call.answered_at`).
    """

    job = models.ForeignKey(Job, models.CASCADE, related_name="shards", db_index=False)
    account = models.ForeignKey(Account, models.PROTECT)
    ordinal = models.PositiveIntegerField(_l("序号"))
    status = models.CharField(
        _l("状态"),
        max_length=10,
        choices=choices(SHARD_LABELS.items()),
        default=ShardStatus.PENDING,
    )
    reason = models.CharField(_l("原因"), max_length=12, blank=True, default="")
    #: highest `Item.seq` settled so far; for people — claims go by item state
    cursor = models.PositiveIntegerField(_l("游标"), default=0)
    last_advanced_at = models.DateTimeField(_l("最近推进"), null=True)
    total = models.PositiveIntegerField(default=0)
    pending = models.IntegerField(default=0)
    submitted = models.IntegerField(default=0)
    confirmed = models.IntegerField(default=0)
    failed = models.IntegerField(default=0)
    abandoned = models.IntegerField(default=0)
    #: of the submitted ones, those without an answer
    in_doubt = models.IntegerField(default=0)
    #: consecutive bad outcomes, for the breaker
    bad_streak = models.PositiveIntegerField(default=0)
    #: taken up after a stop: one item at a time until one went well, and none after a bad one
    probe = models.BooleanField(default=False, db_default=False)

    class Meta:
        verbose_name = _l("分片")
        verbose_name_plural = _l("分片")
        constraints = [
            models.UniqueConstraint(fields=["job", "ordinal"], name="shard_unique_ordinal"),
            one_of("status", ShardStatus, "shard_status_known"),
            models.CheckConstraint(
                condition=Q(
                    total=F("pending")
                    + F("submitted")
                    + F("confirmed")
                    + F("failed")
                    + F("abandoned")
                ),
                name="shard_counts_sum",
            ),
            models.CheckConstraint(
                condition=Q(pending__gte=0)
                & Q(submitted__gte=0)
                & Q(confirmed__gte=0)
                & Q(failed__gte=0)
                & Q(abandoned__gte=0)
                & Q(in_doubt__gte=0)
                & Q(in_doubt__lte=F("submitted")),
                name="shard_counts_not_negative",
            ),
        ]
        indexes = [
            # adoption: which accounts have something to run
            models.Index(
                fields=["account", "job"],
                name="shard_runnable",
                condition=Q(status__in=["pending", "running"]),
            ),
            # how much is in doubt, on every page: few rows
            models.Index(fields=["job"], name="shard_in_doubt", condition=Q(in_doubt__gt=0)),
        ]

    def __str__(self) -> str:
        return f"{self.job_id}#{self.ordinal}"


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
