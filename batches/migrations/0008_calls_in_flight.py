"""The index of what is in flight has an order of its own (see `lost_calls`)."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("batches", "0007_priority_and_alerts")]

    operations = [
        migrations.RemoveIndex(model_name="call", name="call_in_flight"),
        migrations.AddIndex(
            model_name="call",
            index=models.Index(
                fields=["shard", "lane_id"],
                name="call_in_flight",
                condition=models.Q(answered_at__isnull=True, lost_at__isnull=True),
            ),
        ),
    ]
