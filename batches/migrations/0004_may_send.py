"""The one place that knows when a job's schedule and hours let it send."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("batches", "0003_limits")]

    operations = [
        migrations.RunSQL(
            """
            create function batches_may_send(
              start_at timestamptz, window_from time, window_to time, at timestamptz, tz text
            ) returns boolean
            language sql stable parallel safe as $$
              select (start_at is null or start_at <= at) and (
                window_from is null
                or case when window_from < window_to
                  then (at at time zone tz)::time >= window_from
                    and (at at time zone tz)::time < window_to
                  else (at at time zone tz)::time >= window_from
                    or (at at time zone tz)::time < window_to
                end)
            $$
            """,
            "drop function batches_may_send(timestamptz, time, time, timestamptz, text)",
        ),
    ]
