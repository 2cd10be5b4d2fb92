"""What every page of the console costs at the server with millions of items behind it."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from . import rows
from .ground import Table, percentile

ACCOUNTS = 40
CATEGORIES = ("target_invalid", "content_invalid", "param", "message_state", "other", "permission")
BAR_MS = 150.0


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is behind the pages: one large job, many small ones."""

    large: int
    small_jobs: int
    small: int
    failed: int
    in_doubt: int

    def times(self, factor: int) -> Scale:
        """As many jobs, each of them so many times as large."""
        return replace(
            self,
            large=self.large * factor,
            small=self.small * factor,
            failed=self.failed * factor,
        )


SMALL = Scale(large=4_000, small_jobs=60, small=80, failed=400, in_doubt=100)
BIG = Scale(large=400_000, small_jobs=400, small=1_500, failed=50_000, in_doubt=1_000)


def run(table: Table, *, quick: bool, items: int) -> None:
    client = Client()
    few = _measure(client, SMALL, times=3)
    scale = SMALL if quick else BIG.times(items // 1_000_000)
    many = _measure(client, scale, times=5 if quick else 40)
    ((found,),) = rows.rows("select count(*) from batches_item")
    table.head(f"pages: {found:,} items, {scale.small_jobs + 1} jobs, {ACCOUNTS} accounts")
    slowest = 0.0
    for name, page in many.items():
        if page.refusal:
            table.add(f"  {name}", page.refusal)
            continue
        p95 = percentile(page.times, 0.95)
        if not page.download:
            slowest = max(slowest, p95)
        told = f"p50 {percentile(page.times, 0.5):.0f} ms, p95 {p95:.0f} ms, {len(page.body):,} B"
        grown = page.queries - few[name].queries
        same = f"{page.queries} queries" + (f" ({grown:+d} against few items)" if grown else "")
        bar = "a download" if page.download else "" if p95 <= BAR_MS and grown <= 0 else "!"
        table.add(f"  {name}", told, same, bar)
    table.add("slowest page, p95", f"{slowest:.0f} ms", "", f"≤ {BAR_MS:.0f} ms")
    grown_pages = [
        name
        for name, page in many.items()
        if page.queries > few[name].queries and not (page.download or page.refusal)
    ]
    table.add("pages whose queries depend on items", ", ".join(grown_pages) or "none", "", "none")
    body = many["job"].body
    table.add("weight of the job page", f"{len(body):,} B, gzip {len(gzip.compress(body)):,} B")


@dataclass(slots=True)
class Page:
    """One page as measured; `refusal` where it has nothing to show for a GET."""

    times: list[float]
    queries: int
    body: bytes
    refusal: str = ""
    #: a file, read in pages of its own; its time is its length
    download: bool = False


def _measure(client: Client, scale: Scale, *, times: int) -> dict[str, Page]:
    rows.clear()
    job = _seed(scale)
    user, _ = get_user_model().objects.get_or_create(
        username="benchmark", defaults={"is_staff": True, "is_superuser": True}
    )
    client.force_login(user)
    return {name: _get(client, url, times) for name, url in _addresses(job)}


def _addresses(job: int) -> Iterator[tuple[str, str]]:
    """Every address of the console, for the large job and things of it."""
    from batches.admin.urls import screens

    ((item, category, ordinal, account),) = rows.rows(
        "select i.id, i.category, s.ordinal, s.account_id from batches_item i"
        " join batches_shard s on s.id = i.shard_id"
        " where i.job_id = %s and i.state = 'failed' limit 1",
        job,
    )
    values = {
        "job_id": job, "item_id": item, "category": category, "ordinal": ordinal,
        "account_id": account,
    }  # fmt: skip
    yield "overview", reverse("admin:index")
    for pattern in screens(lambda view: view):
        wanted = pattern.pattern.converters
        yield (
            str(pattern.name),
            reverse(f"admin:{pattern.name}", kwargs={key: values[key] for key in wanted}),
        )


def _get(client: Client, url: str, times: int) -> Page:
    client.get(url)  # templates and plans of a first time
    with CaptureQueriesContext(connection) as queries:
        answer = client.get(url)
        body = _body(answer)
    asked = len(queries)
    if answer.status_code != 200:
        return Page([], asked, body, refusal=f"answers {answer.status_code} to a GET")
    taken: list[float] = []
    download = url.endswith(".csv")
    for _ in range(min(times, 3) if download else times):
        started = time.perf_counter()
        _body(client.get(url))
        taken.append((time.perf_counter() - started) * 1000)
    return Page(sorted(taken), asked, body, download=download)


def _body(answer: Any) -> bytes:
    return b"".join(answer.streaming_content) if answer.streaming else answer.content


def _seed(scale: Scale) -> int:
    """The large job, running, with failures and doubts; the small ones completed."""
    accounts = rows.make_accounts(9, ACCOUNTS, per_min=60)
    for _ in range(scale.small_jobs):
        rows.settle_all(rows.make_job(accounts, scale.small // ACCOUNTS, status="completed"))
    # ten slices of each account, as a file of this size is cut
    job = rows.make_job(accounts * 10, scale.large // ACCOUNTS // 10)
    _send(job, scale)
    rows.execute(
        "insert into batches_jobminute"
        " (job_id, minute, sent, confirmed, failed, in_doubt, returned)"
        " select %s, date_trunc('minute', now()) - n * interval '1 minute', 2400, 2000, 300, 5, 95"
        " from generate_series(0, 300) n",
        job,
    )
    rows.execute(
        "insert into batches_event (kind, job_id, actor_name, reason, data)"
        " select 'job.paused', %s, '王芳', '核对内容', '{}' from generate_series(1, 20000)",
        job,
    )
    rows.execute(
        'insert into batches_rejection (job_id, row_no, code, "column", value, text, params,'
        " fields) select %s, n, 'id_bad', '客户ID', 'x', '客户ID 不对', '{}', '[\"a\",\"b\"]'"
        " from generate_series(1, 2000) n",
        job,
    )
    rows.execute(
        "insert into batches_alert (key, kind, job_id, text, params)"
        " select 'benchmark-' || n, 'job.stuck', %s, '作业停滞', '{}'"
        " from generate_series(1, 30) n",
        job,
    )
    rows.tidy()
    return job


def _send(job: int, scale: Scale) -> None:
    """Half of the large job is sent: the first of them failed, the next in doubt."""
    rows.execute(
        """
        with numbered as materialized (
          select i.id, i.shard_id, i.seq, s.account_id, nextval('batches_call_id_seq') as call_id,
            row_number() over (order by i.seq, i.id) as n
          from batches_item i join batches_shard s on s.id = i.shard_id where s.job_id = %s),
        sent as materialized (
          select *, case when n <= %s then 'failed' when n <= %s then 'submitted'
            else 'confirmed' end as state
          from numbered where n <= %s),
        item as (
          update batches_item i
          set state = c.state, attempt = 1, call_id = c.call_id,
            submitted_at = now() - n * interval '2 ms',
            settled_at = case when c.state <> 'submitted' then now() end,
            in_doubt_at = case when c.state = 'submitted' then now() - n * interval '1 s' end,
            category = case when c.state = 'failed' then (%s::text[])[1 + n %% %s]
              when c.state = 'submitted' then 'timeout' end,
            code = case when c.state = 'failed' then (4000 + n %% 23)::text end,
            message = case when c.state = 'failed' then 'refused by the gateway' end,
            msg_id = case when c.state = 'confirmed' then 'm-' || c.call_id end
          from sent c where i.id = c.id)
        insert into batches_call (id, job_id, shard_id, account_id, lane_id, item_ids, sent_at,
          answered_at, lost_at, outcome)
        select call_id, %s, shard_id, account_id, 1, array[id], now() - n * interval '2 ms',
          case when state <> 'submitted' then now() end,
          case when state = 'submitted' then now() end,
          case state when 'failed' then 'refused' when 'submitted' then 'unknown'
            else 'accepted' end
        from sent
        """,
        job,
        scale.failed,
        scale.failed + scale.in_doubt,
        scale.large // 2,
        list(CATEGORIES),
        len(CATEGORIES),
        job,
    )
    rows.execute(
        """
        update batches_shard s
        set status = 'running', pending = n.pending, submitted = n.submitted,
          in_doubt = n.submitted, confirmed = n.confirmed, failed = n.failed,
          cursor = n.cursor, last_advanced_at = now()
        from (
          select shard_id, count(*) filter (where state = 'pending') as pending,
            count(*) filter (where state = 'submitted') as submitted,
            count(*) filter (where state = 'confirmed') as confirmed,
            count(*) filter (where state = 'failed') as failed,
            coalesce(max(seq) filter (where state <> 'pending'), 0) as cursor
          from batches_item where job_id = %s group by shard_id
        ) n
        where s.id = n.shard_id
        """,
        job,
    )
    rows.execute(
        "update batches_job set budget_used = %s, started_at = now() - interval '5 hours',"
        " rejected_rows = 2000 where id = %s",
        scale.large // 2 - scale.failed,
        job,
    )
