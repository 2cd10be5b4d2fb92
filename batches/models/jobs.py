"""Jobs and their shards: what is to be done, within which limits, and how far it is."""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _l

from batches.domain.states import (
    JOB_LABELS,
    PAUSE_LABELS,
    SHARD_LABELS,
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
    #: taken up after a stop, then: of what is sent since, one item at a time until one went well,
    #: and none after a bad one
    probe_from = models.DateTimeField(null=True, editable=False)

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
