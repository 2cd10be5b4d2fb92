"""Rows to measure with: accounts whose gates are open, jobs, and old items by the million."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection

from batches.models import Account, Gateway, Job

#: so high that no gate ever binds
OPEN = 6_000_000
COLUMNS = ["account", "target", "name", "points"]
MAPPING = {"account": 0, "target": 1, "name": 2}
PARAMS = {"content": "您好 {name}，您的积分还有 {points} 分，月底前可以兑换礼品。"}
TABLES = (
    "batches_item, batches_call, batches_jobminute, batches_event, batches_alert, batches_shard,"
    " batches_rejection, batches_job, batches_account, batches_gateway, batches_lane"
)


def execute(statement: str, *values: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)


def rows(statement: str, *values: object) -> list[tuple]:  # type: ignore[type-arg]
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        return list(cursor.fetchall())


def clear() -> None:
    """No rows of ours; sequences go on."""
    execute(f"truncate {TABLES} cascade")


def make_accounts(port: int, count: int, *, per_min: int = OPEN) -> list[int]:
    """Accounts of one gateway on loopback; their ids."""
    gateway, _ = Gateway.objects.get_or_create(
        base_url=f"http://127.0.0.1:{port}",
        defaults={"token": "benchmark-token", "callback_secret": f"benchmark-{port}"},
    )
    made = Account.objects.bulk_create(
        Account(
            gateway=gateway, guid=f"benchmark-{n:05}", name=f"账号 {n}", total_rate_per_min=per_min
        )
        for n in range(count)
    )
    return [account.pk for account in made]


def make_job(accounts: Sequence[int], each: int, *, status: str = "running") -> int:
    """A job with one shard of `each` items per account, all pending; its id."""
    job = Job.objects.create(
        name="benchmark",
        action="send_text",
        params=PARAMS,
        columns=COLUMNS,
        mapping=MAPPING,
        status=status,
        total=len(accounts) * each,
    )
    execute(
        "insert into batches_shard (job_id, account_id, ordinal, status, reason, cursor, total,"
        " pending, submitted, confirmed, failed, abandoned, in_doubt, bad_streak)"
        " select %s, a.id, a.n, 'pending', '', 0, %s, %s, 0, 0, 0, 0, 0, 0"
        " from unnest(%s::bigint[]) with ordinality a(id, n)",
        job.pk,
        each,
        each,
        list(accounts),
    )
    execute(
        "insert into batches_item (job_id, shard_id, seq, row_no, target, fields)"
        " select s.job_id, s.id, n, n + 1, (7881300000000000 + s.id * 100000 + n)::text,"
        "   array[a.guid, (7881300000000000 + s.id * 100000 + n)::text, '客户' || n, n::text]"
        " from batches_shard s join batches_account a on a.id = s.account_id,"
        "   generate_series(1, %s) n"
        " where s.job_id = %s order by s.id, n",
        each,
        job.pk,
    )
    return job.pk


def make_jobs(accounts: Sequence[int], *, jobs: int, each: int) -> list[int]:
    """`jobs` jobs that share the accounts out between them."""
    return [make_job(accounts[n::jobs], each) for n in range(jobs)]


def make_history(accounts: Sequence[int], items: int, *, per_job: int = 20_000) -> None:
    """Settled items of completed jobs, each with its call, as lanes leave them."""
    left = items
    while left > 0:
        size = min(left, per_job)
        job = make_job(accounts, size // len(accounts), status="completed")
        settle_all(job)
        left -= size


def settle_all(job: int) -> None:
    """Make every item of a job confirmed; two hours ago, one call each."""
    execute(
        "with c as materialized (select i.id, i.shard_id, nextval('batches_call_id_seq') as call_id"
        "   from batches_item i join batches_shard s on s.id = i.shard_id where s.job_id = %s),"
        " u as (update batches_item i set state = 'confirmed', attempt = 1, call_id = c.call_id,"
        "   submitted_at = now() - interval '2 hours', settled_at = now() - interval '2 hours',"
        "   msg_id = 'm-' || c.call_id from c where i.id = c.id)"
        " insert into batches_call (id, job_id, shard_id, account_id, lane_id, item_ids, sent_at,"
        "   answered_at, outcome, http_status, duration_ms)"
        " select c.call_id, s.job_id, s.id, s.account_id, 1, array[c.id],"
        "   now() - interval '2 hours', now() - interval '2 hours', 'accepted', 200, 3"
        " from c join batches_shard s on s.id = c.shard_id",
        job,
    )
    execute(
        "update batches_shard set status = 'completed', confirmed = total, pending = 0,"
        " cursor = total, last_advanced_at = now() - interval '2 hours' where job_id = %s",
        job,
    )


def drop_job(job: int) -> None:
    """Take a job away again, dead rows included."""
    execute(
        "delete from batches_item i using batches_shard s"
        " where s.job_id = %s and i.shard_id = s.id",
        job,
    )
    execute(
        "delete from batches_call c using batches_shard s"
        " where s.job_id = %s and c.shard_id = s.id",
        job,
    )
    execute("delete from batches_shard where job_id = %s", job)
    execute("delete from batches_jobminute where job_id = %s", job)
    execute("delete from batches_event where job_id = %s", job)
    execute("delete from batches_job where id = %s", job)


def tidy() -> None:
    """Vacuum and statistics, as autovacuum brings them in an hour of quiet; then a checkpoint."""
    execute("vacuum analyze")
    execute("checkpoint")
