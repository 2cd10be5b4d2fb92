"""The audit's filters by kind, time and account find their rows by index."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("batches", "0008_calls_in_flight")]

    operations = [
        migrations.AddIndex(
            model_name="event",
            index=models.Index(fields=["kind", "-id"], name="event_kind"),
        ),
        migrations.AddIndex(
            model_name="event",
            index=models.Index(fields=["at"], name="event_at"),
        ),
        migrations.AddIndex(
            model_name="event",
            index=models.Index(
                fields=["account", "-id"],
                name="event_account",
                condition=models.Q(account__isnull=False),
            ),
        ),
    ]
