"""How long a file takes to become a job, against a bare COPY of the same rows.

    python benchmarks/intake.py [--rows N]

Both put the same rows into tables with the same indexes and constraints. The intake runs in a
process of its own, so that its peak memory is its own too. Needs DATABASE_URL; makes and drops
a schema's worth of rows under one job and one table of its own.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "wecom_ops.settings")
os.environ["DEBUG"] = "0"  # with it Django keeps every statement in memory
os.environ.setdefault("SECRET_KEY", "only-for-benchmarks")
os.environ.setdefault("HTTPS", "off")

import django  # noqa: E402

django.setup()

from django.db import connection  # noqa: E402

from batches.models import Account, Gateway, Job, Rejection, Shard, Upload  # noqa: E402
from batches.services.submissions import run_intake, submit  # noqa: E402
from batches.store.loading import clear_job  # noqa: E402

ACCOUNTS = 200
HEADER = "账号,客户ID,客户姓名,城市,会员等级,积分,备注\r\n"
COLUMNS = "job_id, shard_id, seq, row_no, target, fields"


def line(number: int) -> str:
    """A row as a spreadsheet writes it: numbers, Chinese, now and then quotes and a line end."""
    note = '"多行\n备注，说""好"""' if number % 17 == 0 else "老客户"
    account = f"bench-{number * 7919 % ACCOUNTS:04}"
    return f"{account},{7881300000000000 + number},姓名{number},呼和浩特,金卡,{number},{note}\r\n"


def file_of(rows: int) -> Iterator[bytes]:
    """The file, in pieces."""
    yield ("\ufeff" + HEADER).encode()
    for start in range(0, rows, 10_000):
        yield "".join(map(line, range(start, min(start + 10_000, rows)))).encode()


def make_accounts() -> None:
    gateway, _ = Gateway.objects.get_or_create(
        base_url="http://127.0.0.1:9/benchmark", defaults={"callback_secret": "benchmark"}
    )
    Account.objects.bulk_create(
        (Account(gateway=gateway, guid=f"bench-{n:04}") for n in range(ACCOUNTS)),
        ignore_conflicts=True,
    )


def drop(job: Job) -> None:
    clear_job(job.pk)
    upload = job.upload_id
    job.event_set.all().delete()
    job.delete()
    Upload.objects.filter(pk=upload).delete()


def peak_mb() -> float:
    """Largest resident size of this process; `ru_maxrss` would include its parent's."""
    for entry in Path("/proc/self/status").read_text().splitlines():
        if entry.startswith("VmHWM:"):
            return int(entry.split()[1]) / 1024
    raise RuntimeError("no VmHWM in /proc/self/status")


def child(job_id: int) -> None:
    """The measured process: reads one job's file and says how it went."""
    started, cpu = time.perf_counter(), time.process_time()
    done = run_intake(job_id)
    took = time.perf_counter() - started
    print(
        json.dumps(
            {
                "done": done,
                "seconds": took,
                "cpu_seconds": time.process_time() - cpu,
                "peak_mb": peak_mb(),
            }
        )
    )


def bare_copy(job_id: int) -> float:
    """Seconds of a COPY of the job's items into an identical, empty table."""
    buffer = io.BytesIO()
    with connection.cursor() as cursor:
        cursor.execute("drop table if exists benchmark_item")
        cursor.execute("create table benchmark_item (like batches_item including all)")
        query = (
            f"copy (select i.{', i.'.join(COLUMNS.split(', '))} from batches_item i"
            f" join batches_shard s on s.id = i.shard_id where s.job_id = {job_id}"
            " order by i.row_no) to stdout"
        )
        with cursor.copy(query) as copy:
            for piece in copy:
                buffer.write(piece)
        data = buffer.getvalue()
        cursor.execute("checkpoint")
        started = time.perf_counter()
        with cursor.copy(f"copy benchmark_item ({COLUMNS}) from stdin") as copy:
            for start in range(0, len(data), 1 << 20):
                copy.write(data[start : start + (1 << 20)])
        took = time.perf_counter() - started
        cursor.execute("drop table benchmark_item")
    return took


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return 0
    make_accounts()
    started = time.perf_counter()
    job = submit(
        actor=None,
        action="send_text",
        params={"content": "您好 {姓名}，您有 {积分} 积分"},
        upload_name="benchmark.csv",
        chunks=file_of(options.rows),
        rerun_reason=f"benchmark {time.time()}",
        enqueue=False,
    ).job
    upload = time.perf_counter() - started
    try:
        with connection.cursor() as cursor:
            cursor.execute("checkpoint")
        told = subprocess.run(
            [sys.executable, __file__, "--child", str(job.pk)], stdout=subprocess.PIPE, check=True
        )
        intake = json.loads(told.stdout)
        job.refresh_from_db()
        assert job.total == options.rows, job.intake["problem"]
        assert not Rejection.objects.filter(job=job).exists()
        shards = Shard.objects.filter(job=job).count()
        bare = bare_copy(job.pk)
    finally:
        drop(job)
    ratio = intake["seconds"] / bare
    print(f"rows {options.rows:,}, shards {shards}, upload {upload:.1f} s")
    print(f"intake {intake['seconds']:.1f} s ({intake['cpu_seconds']:.1f} s of CPU in Python)")
    print(f"bare COPY into an identical table {bare:.1f} s")
    print(f"ratio {ratio:.2f} (at most 4), peak memory {intake['peak_mb']:.0f} MB (at most 300)")
    return 0 if ratio <= 4 and intake["peak_mb"] <= 300 else 1


if __name__ == "__main__":
    sys.exit(main())
