"""Room for updates in place on the small tables that every claim and settle updates."""

from django.db import migrations

_HOT = ("batches_account", "batches_shard", "batches_job", "batches_lane", "batches_jobminute")


class Migration(migrations.Migration):
    dependencies = [("batches", "0005_gate_size")]

    operations = [
        # A new version of a row finds place on its own page and no index is touched; vacuum
        # comes early, since these few pages are rewritten thousands of times an hour.
        migrations.RunSQL(
            f"alter table {table} set (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02)",
            f"alter table {table} reset (fillfactor, autovacuum_vacuum_scale_factor)",
        )
        for table in _HOT
    ]
