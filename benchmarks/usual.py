"""The usual designs: one task per item, ORM updates around a `requests` call.

    python -m benchmarks.usual DESIGN      a worker of that design; used by `measure`

Each does the same durable work: reads its item, marks it as being sent, posts, marks it sent,
counts it on its job. Each runs two processes, one per core of the machine measured on.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from functools import cache
from typing import Any

DESIGNS = {
    "rq": "RQ, 2 SimpleWorkers, task per item, ORM, requests",
    "celery": "Celery, prefork × 2, acks_late, the same task",
    "procrastinate": "procrastinate, 2 workers, the same task",
}
PROCESSES = 2
QUEUE = "benchmark-usual"
TABLE = (
    "drop table if exists benchmark_item; drop table if exists benchmark_job;"
    " create table benchmark_job (id bigint primary key, sent integer not null);"
    " create table benchmark_item (id bigint primary key, job_id bigint not null,"
    "   guid text not null, target text not null, content text not null, state text not null,"
    "   msg_id text, submitted_at timestamptz, settled_at timestamptz)"
)


@cache
def models() -> tuple[Any, Any]:
    """Two models over tables of our own; no app of the project knows them."""
    from django.db import models as fields

    class BenchmarkJob(fields.Model):  # noqa: DJ008 - nobody reads it
        id = fields.BigIntegerField(primary_key=True)
        sent = fields.IntegerField()

        class Meta:
            app_label = "benchmarks"
            managed = False
            db_table = "benchmark_job"

    class BenchmarkItem(fields.Model):  # noqa: DJ008
        id = fields.BigIntegerField(primary_key=True)
        job = fields.ForeignKey(BenchmarkJob, fields.DO_NOTHING)
        guid = fields.TextField()
        target = fields.TextField()
        content = fields.TextField()
        state = fields.TextField()
        msg_id = fields.TextField(null=True)
        submitted_at = fields.DateTimeField(null=True)
        settled_at = fields.DateTimeField(null=True)

        class Meta:
            app_label = "benchmarks"
            managed = False
            db_table = "benchmark_item"

    return BenchmarkJob, BenchmarkItem


@cache
def session() -> Any:
    import requests

    return requests.Session()


def send_one(item_id: int) -> None:
    """What a task does."""
    from django.db.models import F
    from django.utils import timezone

    job_model, item_model = models()
    item = item_model.objects.select_related("job").get(pk=item_id)
    if item.state != "pending":
        return
    item.state, item.submitted_at = "submitted", timezone.now()
    item.save(update_fields=["state", "submitted_at"])
    answer = session().post(
        f"http://127.0.0.1:{os.environ['BENCHMARK_PORT']}/message/sendText",
        json={"guid": item.guid, "toId": item.target, "content": item.content},
        timeout=30,
    )
    data = answer.json()
    item.state = "confirmed" if data["code"] == 0 else "failed"
    item.msg_id, item.settled_at = data["data"]["msgUniqueIdentifier"], timezone.now()
    item.save(update_fields=["state", "msg_id", "settled_at"])
    job_model.objects.filter(pk=item.job_id).update(sent=F("sent") + 1)


def celery_app() -> Any:
    from celery import Celery

    app = Celery("benchmarks", broker=os.environ["REDIS_URL"])
    app.conf.update(
        task_default_queue=QUEUE,
        task_acks_late=True,
        task_ignore_result=True,
        worker_hijack_root_logger=False,
    )
    app.task(name="send_one")(send_one)
    return app


def procrastinate_app() -> Any:
    import procrastinate

    url = os.environ["DATABASE_URL"]
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))
    app.task(name="send_one", queue=QUEUE)(send_one)
    return app


def measure(design: str, *, port: int, items: int) -> float | None:
    """Items per second, from the first item's start to the last one's end; None if it cannot."""
    if importlib.util.find_spec(design) is None:
        return None
    from . import ground, rows

    rows.execute(TABLE)
    rows.execute("insert into benchmark_job values (1, 0)")
    rows.execute(
        "insert into benchmark_item select n, 1, 'benchmark-' || n %% 500, 788130000 + n,"
        " '您好 客户' || n || '，您的积分还有 ' || n || ' 分，月底前可以兑换礼品。', 'pending'"
        " from generate_series(1, %s) n",
        items,
    )
    extra = {"BENCHMARK_PORT": str(port)}
    ground.run("usual", f"{design}-enqueue", str(items), **extra)
    processes = 1 if design == "celery" else PROCESSES  # Celery makes its own two
    workers = [ground.start("usual", design, **extra) for _ in range(processes)]

    def done() -> bool:
        return rows.rows("select sent from benchmark_job") == [(items,)]

    try:
        ground.until(done, limit=120)
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait(timeout=30)
    ((seconds,),) = rows.rows(
        "select extract(epoch from max(settled_at) - min(submitted_at))::float8 from benchmark_item"
    )
    rows.execute("drop table benchmark_item; drop table benchmark_job")
    return items / float(seconds)


def enqueue(design: str, items: int) -> None:
    numbers = range(1, items + 1)
    if design == "rq":
        import redis
        import rq

        queue = rq.Queue(QUEUE, connection=redis.Redis.from_url(os.environ["REDIS_URL"]))
        queue.empty()
        for number in numbers:
            queue.enqueue("benchmarks.usual.send_one", number, result_ttl=0)
    elif design == "celery":
        app = celery_app()
        app.control.purge()
        for number in numbers:
            app.send_task("send_one", args=[number])
    else:
        _defer(numbers)


def _defer(numbers: range) -> None:
    app = procrastinate_app()
    sync = app.with_connector(app.connector.get_sync_connector())
    with sync.open():
        from . import rows

        if rows.rows("select to_regclass('procrastinate_jobs')") == [(None,)]:
            sync.schema_manager.apply_schema()
        rows.execute("truncate procrastinate_jobs cascade")
        sync.tasks["send_one"].batch_defer(*({"item_id": number} for number in numbers))


def work(design: str) -> None:
    if design == "rq":
        import redis
        import rq

        connection = redis.Redis.from_url(os.environ["REDIS_URL"])
        rq.SimpleWorker([QUEUE], connection=connection).work(logging_level="WARNING")
    elif design == "celery":
        celery_app().worker_main(
            [
                *("worker", "--pool=prefork", f"--concurrency={PROCESSES}", "--loglevel=ERROR"),
                *("--without-gossip", "--without-mingle", "--without-heartbeat", "-Q", QUEUE),
            ]
        )
    else:
        procrastinate_app().run_worker(queues=[QUEUE], concurrency=1, delete_jobs="successful")


def main() -> None:
    import django

    django.setup()
    design, _, act = sys.argv[1].partition("-")
    if act:
        started = time.monotonic()
        enqueue(design, int(sys.argv[2]))
        print(json.dumps({"seconds": time.monotonic() - started}))
    else:
        work(design)


if __name__ == "__main__":
    main()
