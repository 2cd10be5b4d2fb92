"""Gateways, the accounts they drive, and the contacts of those accounts."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _l
from django.utils.translation import pgettext_lazy

from .secret import EncryptedTextField


class Gateway(models.Model):
    """An HTTP service that acts for accounts; the scope of the per-IP limits."""

    class Dialect(models.TextChoices):
        PATH = "path", _l("路径方言（/message/sendText）")
        METHOD = "method", _l("方法方言（method + params）")

    name = models.CharField(_l("名称"), max_length=100, blank=True)
    kind = models.CharField(_l("类型"), max_length=20, default="wecomapi")
    base_url = models.URLField(_l("地址"), max_length=300, unique=True)
    dialect = models.CharField(
        _l("方言"), max_length=10, choices=Dialect.choices, default=Dialect.PATH
    )
    token = EncryptedTextField(_l("令牌"), blank=True, default="")
    #: paths, header names, success codes, time-outs: see `gateways.wecomapi`
    options = models.JSONField(_l("选项"), default=dict, blank=True)
    callback_secret = models.CharField(_l("回调密钥"), max_length=64, unique=True)
    timeout_seconds = models.FloatField(_l("应答超时（秒）"), default=30.0)
    #: of the IP this installation calls from; shared by all lanes and machines; NULL = no limit
    rate_limit_per_min = models.PositiveIntegerField(
        _l("总速率上限（条/分）"), null=True, blank=True
    )
    max_concurrent = models.PositiveIntegerField(_l("总并发上限"), null=True, blank=True)
    is_active = models.BooleanField(_l("启用"), default=True)
    created_at = models.DateTimeField(_l("创建时间"), db_default=Now(), editable=False)

    class Meta:
        verbose_name = _l("网关")
        verbose_name_plural = pgettext_lazy("plural", "网关")
        constraints = [
            models.CheckConstraint(
                condition=Q(timeout_seconds__gte=1) & Q(timeout_seconds__lte=300),
                name="gateway_timeout_range",
            ),
            models.CheckConstraint(
                condition=(Q(rate_limit_per_min__isnull=True) | Q(rate_limit_per_min__gte=1))
                & (Q(max_concurrent__isnull=True) | Q(max_concurrent__gte=1)),
                name="gateway_limits_positive",
                violation_error_message=_l("网关的速率与并发上限至少为 1；留空表示不限。"),
            ),
        ]

    def __str__(self) -> str:
        return self.name or self.base_url


class Account(models.Model):
    """One WeCom account: the scope of the rate gate and of a lane's ownership.

    Batch rate = total rate − online reserve, per minute; the reserve is never borrowed.
    """

    class Health(models.TextChoices):
        OK = "ok", _l("正常")
        CREDENTIAL = "credential", _l("登录失效")

    gateway = models.ForeignKey(Gateway, models.PROTECT, verbose_name=_l("网关"))
    guid = models.CharField(_l("账号标识"), max_length=64)
    name = models.CharField(_l("名称"), max_length=100, blank=True)
    total_rate_per_min = models.PositiveIntegerField(_l("总速率（条/分）"), default=60)
    online_reserve_per_min = models.PositiveIntegerField(_l("在线保留（条/分）"), default=0)
    max_inflight = models.PositiveSmallIntegerField(_l("同时请求数"), default=1)
    is_active = models.BooleanField(_l("启用"), default=True)
    health = models.CharField(
        _l("健康"), max_length=12, choices=Health.choices, default=Health.OK, editable=False
    )
    health_note = models.CharField(max_length=300, blank=True, default="", editable=False)
    created_at = models.DateTimeField(_l("创建时间"), db_default=Now(), editable=False)

    # --- gate and ownership; written by `store` only ---
    #: earliest moment of the next batch send (virtual schedule of the rate gate)
    gate_at = models.DateTimeField(null=True, editable=False)
    #: targets of its latest call, and the seconds that were charged for it
    gate_size = models.PositiveSmallIntegerField(db_default=1, default=1, editable=False)
    gate_step = models.FloatField(db_default=0.0, default=0.0, editable=False)
    #: share of the batch rate in use now; halves on a rate refusal, recovers in steps
    throttle = models.FloatField(db_default=1.0, default=1.0, editable=False)
    hold_until = models.DateTimeField(null=True, editable=False)
    hold_reason = models.CharField(max_length=12, blank=True, default="", editable=False)
    lane = models.ForeignKey(
        "batches.Lane", models.SET_NULL, null=True, editable=False, related_name="+"
    )

    class Meta:
        verbose_name = _l("账号")
        verbose_name_plural = pgettext_lazy("plural", "账号")
        constraints = [
            models.UniqueConstraint(fields=["gateway", "guid"], name="account_unique_guid"),
            models.CheckConstraint(
                condition=Q(total_rate_per_min__gte=1)
                & Q(online_reserve_per_min__lt=F("total_rate_per_min")),
                name="account_rate_above_reserve",
                violation_error_message=_l("总速率必须大于在线保留，且至少为 1。"),
            ),
            models.CheckConstraint(
                condition=Q(max_inflight__gte=1) & Q(max_inflight__lte=50),
                name="account_max_inflight_range",
                violation_error_message=_l("同时请求数必须在 1 到 50 之间。"),
            ),
            models.CheckConstraint(
                condition=Q(throttle__gt=0) & Q(throttle__lte=1), name="account_throttle_range"
            ),
        ]
        indexes = [models.Index(fields=["guid"], name="account_guid")]

    def __str__(self) -> str:
        return self.name or self.guid

    @property
    def batch_rate_per_min(self) -> int:
        """Sends per minute that batch jobs may use, before throttling."""
        return self.total_rate_per_min - self.online_reserve_per_min


class Contact(models.Model):
    """A customer or group known to an account."""

    account = models.ForeignKey(Account, models.CASCADE, verbose_name=_l("账号"))
    external_id = models.CharField(_l("外部标识"), max_length=64)
    name = models.CharField(_l("名称"), max_length=200, blank=True)
    tags = models.JSONField(_l("标签"), default=list, blank=True)
    updated_at = models.DateTimeField(_l("更新时间"), auto_now=True)

    class Meta:
        verbose_name = _l("联系人")
        verbose_name_plural = _l("联系人")
        constraints = [
            models.UniqueConstraint(fields=["account", "external_id"], name="contact_unique"),
        ]

    def __str__(self) -> str:
        return self.name or self.external_id
