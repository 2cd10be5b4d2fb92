"""Lanes, the event timeline and alerts."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _l

from batches.domain.actors import SHELL_SIGN

from .accounts import Account
from .jobs import Job


class Lane(models.Model):
    """One bounded turn of a lane. Its id is the fencing token: it is never used twice."""

    worker = models.CharField(max_length=200)
    started_at = models.DateTimeField(db_default=Now())
    lease_expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    #: set to ask this turn to end early
    stop_requested = models.BooleanField(default=False)
    sent = models.PositiveBigIntegerField(default=0)
    #: why it sends less than it could: '' or 'redis'
    note = models.CharField(max_length=20, blank=True, db_default="", default="")

    class Meta:
        verbose_name = _l("执行通道")
        verbose_name_plural = _l("执行通道")
        indexes = [
            models.Index(
                fields=["lease_expires_at"], name="lane_live", condition=Q(ended_at__isnull=True)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.worker} #{self.pk}"


class Event(models.Model):
    """One line of the audit and of a job's timeline; never changed."""

    at = models.DateTimeField(_l("时间"), db_default=Now(), editable=False)
    kind = models.CharField(_l("事件"), max_length=40)
    job = models.ForeignKey(Job, models.CASCADE, null=True, db_index=False, verbose_name=_l("作业"))
    shard_ordinal = models.PositiveIntegerField(null=True)
    item_id = models.BigIntegerField(null=True)
    account = models.ForeignKey(
        Account, models.SET_NULL, null=True, db_index=False, verbose_name=_l("账号")
    )
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, verbose_name=_l("操作者")
    )
    #: kept as it was at the time; '' = the system itself
    actor_name = models.CharField(_l("操作者"), max_length=150, blank=True, default="")
    reason = models.CharField(_l("原因"), max_length=300, blank=True, default="")
    data = models.JSONField(default=dict)

    class Meta:
        verbose_name = _l("事件")
        verbose_name_plural = _l("事件")
        indexes = [
            models.Index(fields=["job", "-id"], name="event_job"),
            # the audit's filters: a rare kind, a span of time, an account, the command line
            models.Index(fields=["kind", "-id"], name="event_kind"),
            models.Index(fields=["at"], name="event_at"),
            models.Index(
                fields=["account", "-id"],
                name="event_account",
                condition=Q(account__isnull=False),
            ),
            models.Index(
                fields=["-id"],
                name="event_shell",
                condition=Q(actor_name__startswith=SHELL_SIGN),
            ),
            models.Index(fields=["item_id"], name="event_item", condition=Q(item_id__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.at:%F %T} {self.kind}"


class Alert(models.Model):
    """Something a person has to look at; one open alert per key."""

    key = models.CharField(max_length=120)
    kind = models.CharField(_l("类型"), max_length=40)
    job = models.ForeignKey(Job, models.CASCADE, null=True, verbose_name=_l("作业"))
    account = models.ForeignKey(Account, models.CASCADE, null=True, verbose_name=_l("账号"))
    text = models.TextField(_l("内容"))
    params = models.JSONField(default=dict)
    opened_at = models.DateTimeField(_l("发生时间"), db_default=Now())
    closed_at = models.DateTimeField(_l("解除时间"), null=True)
    sent_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = _l("告警")
        verbose_name_plural = _l("告警")
        constraints = [
            models.UniqueConstraint(
                fields=["key"], name="alert_one_open", condition=Q(closed_at__isnull=True)
            ),
        ]
        # what is still to be told, and when something was told last
        indexes = [models.Index(fields=["sent_at"], name="alert_sent")]

    def __str__(self) -> str:
        return self.kind
