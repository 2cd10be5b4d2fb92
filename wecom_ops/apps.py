"""The admin app with the operator console as its site."""

from __future__ import annotations

from django.contrib.admin.apps import AdminConfig


class ConsoleAdminConfig(AdminConfig):
    default_site = "batches.admin.site.ConsoleSite"

    def ready(self) -> None:
        """The console's own forms are registered once the site exists."""
        super().ready()
        from batches.admin import model_forms, people_forms  # noqa: F401
