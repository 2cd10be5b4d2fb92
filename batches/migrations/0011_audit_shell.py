"""The audit's filter by the command line finds its rows by index."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("batches", "0010_breaker")]

    operations = [
        migrations.AddIndex(
            model_name="event",
            index=models.Index(
                fields=["-id"],
                name="event_shell",
                condition=models.Q(actor_name__startswith="cli:"),
            ),
        ),
    ]
