"""The app's configuration."""

from django.apps import AppConfig


class BatchesConfig(AppConfig):
    name = "batches"
    verbose_name = "批量作业"
    default_auto_field = "django.db.models.BigAutoField"
