"""The app's configuration."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _l


class BatchesConfig(AppConfig):
    name = "batches"
    verbose_name = _l("批量作业")
    default_auto_field = "django.db.models.BigAutoField"
