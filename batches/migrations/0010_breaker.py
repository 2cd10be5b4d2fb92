"""What the breaker remembers beyond one lane's turn, and shards that try with one item first."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("batches", "0009_audit")]

    operations = [
        migrations.AddField(
            model_name="job",
            name="breaker_from",
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="shard",
            name="probe_from",
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="jobminute",
            name="judged",
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="jobminute",
            name="bad",
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
    ]
