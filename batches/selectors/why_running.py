"""Why a running job advances slowly or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from batches.domain.alerts import STUCK_SECONDS
from batches.domain.hours import first_allowed
from batches.domain.problems import Names
from batches.domain.text import N_
from batches.models import Job
from batches.queue import redis_answers

from .ground import LANE_GAP, Ground
from .reasons import ACCOUNTS, GATEWAYS, STUCK_SHARDS, Why

#: a throttle below this share is worth a word
SLOW_BELOW = 0.95
_GAP = timedelta(seconds=LANE_GAP)
_STUCK_AFTER = timedelta(seconds=STUCK_SECONDS)


def why_running(job: Job, ground: Ground, *, queued: bool | None) -> Why:
    """The strongest cause that holds for everything left to send."""
    now = timezone.now()
    causes = ground.causes.get(job.pk)
    if not causes:
        return Why("in_flight", N_("全部已发出，等在途条目出结果。"))
    # 0. not yet, or not at this hour: nobody needs to execute anything
    if closed := _closed(job, now):
        return closed
    # 1. every shard is stopped until a person acts: then no lane is at work, and need not be
    if not set(causes) - set(_STOPPED):
        cause, row = next(iter(causes.items()))
        return _with(_STOPPED[cause], row)
    # 2. nobody executes at all
    if no_lane := _no_lane(job, ground, now, queued):
        return no_lane
    # 3. limits of the job as a whole
    if job.budget_limit is not None and job.budget_used >= job.budget_limit:
        return Why("budget_wait", N_("预算已用完，等在途条目出结果后自动暂停。"), level="info")
    moving = {cause: row for cause, row in causes.items() if cause not in _STOPPED}
    # 4. every other shard waits for something that ends by itself
    if "free" not in moving:
        cause, row = next(iter(moving.items()))
        return _with(_HELD.get(cause, _HELD["hold_rate"]), row)
    return _free(job, ground, causes, now)


def _free(job: Job, ground: Ground, causes: Mapping[str, dict[str, Any]], now: datetime) -> Why:
    """Something could be sent now: it moves, is stuck, or waits for a second try."""
    free = causes["free"]
    if job.rate_at is not None and job.rate_at > now + timedelta(seconds=5):
        return Why(
            "job_rate",
            N_("等待作业速率上限（%(limit)s 条/分），下一条约在 %(until)s。"),
            {"limit": job.rate_limit_per_min, "until": job.rate_at},
            level="info",
        )
    advanced = max(filter(None, (free["last_advanced_at"], job.started_at)), default=None)
    waits = advanced is not None and now - advanced > _GAP
    if waits and (uncompiled := _uncompiled(job, ground, advanced)):
        return uncompiled
    if stuck := _stuck(job, ground, free["shards"]):
        return stuck
    if shared := _shared_limit(job, ground, now):
        return shared
    if waits:
        due_at = ground.backoff.get(job.pk)
        if isinstance(due_at, datetime) and due_at > now:
            return Why(
                "backoff",
                N_("剩余条目都在退避等待重试，下一条约在 %(until)s。"),
                {"until": due_at},
                level="info",
            )
    slow = min(row["throttle"] for row in causes.values())
    if slow < SLOW_BELOW:
        return Why(
            "throttled",
            N_("正在推进；账号被限流，最慢的已自动降到 %(percent)s%%，会逐步恢复。"),
            {"percent": round(slow * 100)},
            level="info",
        )
    stopped = {cause: row for cause, row in causes.items() if cause in _STOPPED}
    if stopped:
        return Why(
            "partly_stopped",
            N_("正在推进；另有 %(shards)s 个分片的 %(count)s 条停着。"),
            {
                "shards": sum(row["shards"] for row in stopped.values()),
                "count": sum(row["waiting"] for row in stopped.values()),
            },
            cure_text=N_("在分片表里看原因，处理好后点「继续停下的分片」。")
            if BY_SYSTEM & set(stopped)
            else N_("在分片表里看原因。"),
            level="warn",
        )
    return Why("moving", N_("正在推进。"))


def _stuck(job: Job, ground: Ground, free: int) -> Why | None:
    """By the one measure of it; of `free` shards that could send some are stuck, or all."""
    row = ground.standing.get(job.pk)
    if row is None or not row["stuck"]:
        return None
    if row["stuck"] < free:
        return Why(
            "partly_stuck",
            N_("%(shards)s 个分片超过 %(minutes)s 分钟没有推进，其他分片照常。"),
            {"shards": row["stuck"], "minutes": round(STUCK_SECONDS / 60)},
            cure_text=N_("查看卡住的分片和原因。"),
            cure_url_name=STUCK_SHARDS,
            level="warn",
        )
    return Why(
        "stuck",
        N_("卡住：从 %(since)s 起没有推进，%(count)s 条可以发送却没有发出。"),
        {"since": row["stuck_since"], "count": row["waiting"]},
        cure_text=N_("检查执行进程的日志；重启执行进程不会重发已提交的条目。"),
        level="error",
    )


def _uncompiled(job: Job, ground: Ground, advanced: datetime | None) -> Why | None:
    """A lane looked at the job since it last moved, and could not make sense of it."""
    event = ground.uncompiled.get(job.pk)
    if event is None or (advanced is not None and event.at <= advanced):
        return None
    return Why(
        "cannot_compile",
        N_("作业内容无法处理，没有发送：%(error)s。"),
        {"error": event.reason},
        cure_text=N_("升级或回退程序版本后会自动继续；否则取消作业，改正后重新创建。"),
        level="error",
    )


def _shared_limit(job: Job, ground: Ground, now: datetime) -> Why | None:
    """A limit of the gateway that many accounts share sets the pace, and things do move there."""
    for row in ground.gateways.get(job.pk, ()):
        advanced = max(filter(None, (row["last_advanced_at"], job.started_at)), default=now)
        if now - advanced > _STUCK_AFTER:
            continue
        if row["max_concurrent"] is not None and row["in_flight"] >= row["max_concurrent"]:
            return Why(
                "gateway_busy",
                N_(
                    "网关 %(gateway)s 的 %(limit)s 个并发已占满，"
                    "由多个账号轮流使用，轮到时自动发送。"
                ),
                {"gateway": row["gateway"], "limit": row["max_concurrent"]},
                level="info",
            )
        return Why(
            "gateway_rate",
            N_(
                "快慢由网关 %(gateway)s 的总速率上限（%(limit)s 条/分）决定；"
                "在用的账号合起来可以发 %(wanted)s 条/分。"
            ),
            {
                "gateway": row["gateway"],
                "limit": row["rate_limit_per_min"],
                "wanted": round(row["wanted"]),
            },
            level="info",
        )
    return None


def _closed(job: Job, now: datetime) -> Why | None:
    """The set start is still to come, or these are not the allowed hours."""
    here = timezone.get_default_timezone()
    if job.start_at is not None and job.start_at > now:
        begins = first_allowed(job.start_at, job.window_from, job.window_to, here)
        return Why("scheduled", N_("到 %(until)s 才开始发送。"), {"until": begins}, level="info")
    opens = first_allowed(now, job.window_from, job.window_to, here)
    return None if opens <= now else replace(_HELD["hold_window"], params={"until": opens})


def _no_lane(job: Job, ground: Ground, now: datetime, queued: bool | None) -> Why | None:
    row = ground.standing.get(job.pk)
    if row is None or row["lane_alive"] or not row["open"]:
        return None
    quiet_since = max(filter(None, (row["last_alive_at"], row["since"])), default=None)
    if quiet_since is not None and now - quiet_since < _GAP:
        return None
    if not redis_answers():
        return Why(
            "redis_away",
            N_("Redis 没有应答，执行进程因此停了，作业在等；没有条目因此丢失。"),
            cure_text=N_("检查 Redis 是否在运行；恢复后作业会自己继续。"),
            level="error",
        )
    return Why(
        "no_worker",
        N_("没有执行进程在运行，已排队等待。") if queued else N_("没有执行进程在运行。"),
        cure_text=N_("启动执行进程（lanes 队列的 worker），作业会自己继续。"),
        level="error",
    )


def _with(why: Why, row: dict[str, Any]) -> Why:
    """The cause's sentence with the numbers of this job."""
    params = {
        "count": row["waiting"],
        "shards": row["shards"],
        "accounts": Names(row["accounts"]),
        "until": row["until"],
    }
    return replace(why, params=params)


#: ends only when a person acts
_STOPPED: Mapping[str, Why] = {
    "paused": Why(
        "shards_paused",
        N_("剩余 %(count)s 条都在已暂停的 %(shards)s 个分片里。"),
        cure_text=N_("在分片表里看原因，处理好后点「继续分片」。"),
        level="warn",
    ),
    "paused_credential": Why(
        "credential",
        N_("账号 %(accounts)s 登录失效，%(shards)s 个分片已暂停，%(count)s 条没有发。"),
        cure_text=N_("重新登录账号，再到账号页点「已重新登录」。"),
        cure_url_name=ACCOUNTS,
        level="warn",
    ),
    "paused_breaker": Why(
        "shards_breaker",
        N_("%(shards)s 个分片熔断（账号 %(accounts)s），%(count)s 条没有发。"),
        cure_text=N_("看失败分类，处理好原因后点「继续停下的分片」；会先各试一条。"),
        level="warn",
    ),
    "gateway_off": Why(
        "gateway_off",
        N_("账号 %(accounts)s 的网关已停用，%(count)s 条发不出去。"),
        cure_text=N_("启用网关。"),
        cure_url_name=GATEWAYS,
        level="warn",
    ),
    "account_off": Why(
        "account_off",
        N_("账号 %(accounts)s 已停用，%(count)s 条发不出去。"),
        cure_text=N_("启用账号，或取消作业。"),
        cure_url_name=ACCOUNTS,
        level="warn",
    ),
    "credential": Why(
        "credential",
        N_("账号 %(accounts)s 登录失效，%(count)s 条发不出去。"),
        cure_text=N_("重新登录账号，再到账号页点「已重新登录」。"),
        cure_url_name=ACCOUNTS,
        level="warn",
    ),
}
#: of these, what the system stopped and 继续 of the whole job takes up again
BY_SYSTEM = frozenset({"paused_credential", "paused_breaker"})
#: ends by itself
_HELD: Mapping[str, Why] = {
    "redis": Why(
        "redis_away",
        N_(
            "Redis 没有应答：账号 %(accounts)s 的网关有总上限，不知道还能发多少，"
            "%(count)s 条先不发，恢复后自动继续。"
        ),
        cure_text=N_("检查 Redis 是否在运行。"),
        level="warn",
    ),
    "hold_rate": Why(
        "rate", N_("等待账号 %(accounts)s 的速率闸门，下一条约在 %(until)s。"), level="info"
    ),
    "hold_window": Why("window", N_("不在允许发送的时段，%(until)s 起继续。"), level="info"),
    "hold_backoff": Why("backoff", N_("退避等待，%(until)s 起再试。"), level="info"),
    "hold_gateway": Why(
        "gateway",
        N_("账号 %(accounts)s 的网关连不上，%(until)s 再试；没有条目因此丢失。"),
        cure_text=N_("检查网关是否在运行、地址是否正确。"),
        cure_url_name=GATEWAYS,
        level="warn",
    ),
}
