"""Uploaded files, kept in the database so that web and workers may be on different machines."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _l


class Upload(models.Model):
    """A file as the operator sent it; its bytes are the chunks in order."""

    name = models.CharField(_l("文件名"), max_length=255)
    size = models.BigIntegerField(_l("字节数"))
    sha256 = models.CharField(max_length=64)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, verbose_name=_l("上传者")
    )
    created_at = models.DateTimeField(_l("上传时间"), db_default=Now(), editable=False)

    class Meta:
        verbose_name = _l("上传文件")
        verbose_name_plural = _l("上传文件")

    def __str__(self) -> str:
        return self.name


class UploadChunk(models.Model):
    """One piece of an upload (1 MiB, the last one shorter)."""

    upload = models.ForeignKey(Upload, models.CASCADE, related_name="chunks", db_index=False)
    number = models.PositiveIntegerField()
    data = models.BinaryField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["upload", "number"], name="upload_chunk_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.upload_id}/{self.number}"


class Rejection(models.Model):
    """One file row that did not become an item, and why."""

    job = models.ForeignKey("batches.Job", models.CASCADE, db_index=False)
    row_no = models.PositiveIntegerField(_l("行号"))
    code = models.CharField(_l("原因代码"), max_length=40)
    column = models.CharField(_l("列"), max_length=200, blank=True, default="")
    value = models.CharField(_l("值"), max_length=200, blank=True, default="")
    #: Chinese source text and its parameters (see `domain.problems.Problem`)
    text = models.TextField()
    params = models.JSONField(default=dict)
    #: the row as read, so that it can be downloaded, corrected and uploaded again
    fields = models.JSONField(default=list)

    class Meta:
        verbose_name = _l("未导入的行")
        verbose_name_plural = _l("未导入的行")
        indexes = [
            models.Index(fields=["job", "row_no"], name="rejection_job_row"),
            models.Index(fields=["job", "code", "row_no"], name="rejection_job_code"),
        ]

    def __str__(self) -> str:
        return f"{self.job_id}:{self.row_no} {self.code}"
