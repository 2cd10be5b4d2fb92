"""Recount everything from the items and compare it with what is stored and what is allowed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from batches.domain.states import JobStatus, ShardStatus
from batches.domain.text import N_
from batches.store.queries import run_query

#: findings of one kind that are listed; more would not help
MOST = 200
#: seconds after which a dead lane's work should have been taken over
GRACE = 60
#: leases after which every lane goes by a limit of a gateway that was changed: it looks each
#: second, and if it cannot look for two leases it stops
LAG = 3
_COUNTERS = ("total", "pending", "submitted", "confirmed", "failed", "abandoned", "in_doubt")


@dataclass(frozen=True, slots=True)
class Finding:
    """One drift or broken law; `text` is a catalogue text."""

    code: str
    text: str
    params: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verification:
    """What was looked at, and what is wrong."""

    checked: Mapping[str, int]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return not self.findings


@dataclass(slots=True)
class _Recount:
    """Sums over the shards of one job."""

    shards: int = 0
    total: int = 0
    unsettled: int = 0
    pending: int = 0
    spent: int = 0
    statuses: set[str] = field(default_factory=set)


def verify(*, job_id: int | None = None, grace: int = GRACE) -> Verification:
    """Everything, or one job. Call it in a REPEATABLE READ transaction while lanes are at work.

    The budget rule: used = items whose latest send was not returned by a definite refusal
    (submitted, confirmed, or failed after all: found undelivered, or refused after it had been
    taken) + sends that were spent before a person decided to send again (`item.retried`).
    """
    shards = run_query("verify_shards", job=job_id)
    jobs = run_query("verify_jobs", job=job_id)
    lag = LAG * settings.LANE_LEASE_SECONDS
    statuses = [status.value for status in JobStatus]
    findings = [
        *_shard_findings(shards),
        *_job_findings(jobs, _recount(shards)),
        *_listed("verify_twice", _TWICE, job=job_id, most=MOST),
        *_submitted(run_query("verify_submitted", job=job_id, most=MOST)),
        *_open_calls(run_query("verify_open_calls", job=job_id, most=MOST, grace=grace)),
        *_listed(
            "verify_owners", _OWNER, job=job_id, most=MOST, grace=grace, tz=settings.TIME_ZONE
        ),
        *_listed("verify_rates", _RATE, job=job_id, most=MOST),
        *_listed("verify_job_rates", _JOB_RATE, job=job_id, most=MOST),
        *_listed("verify_gateway_rates", _GATEWAY_RATE, job=job_id, most=MOST, lag=lag),
        *_listed("verify_stops", _STOP, job=job_id, most=MOST, statuses=statuses),
    ]
    size = run_query("verify_size", job=job_id)[0]
    checked = {
        "jobs": len(jobs),
        "shards": len(shards),
        "items": sum(row["counted"][0] for row in shards),
        "calls": size["calls"],
        "accounts": size["accounts"],
    }
    return Verification(checked=checked, findings=tuple(findings))


_TWICE = (
    "sent_twice",
    N_("条目 %(item_id)s（作业 %(job_id)s）发出 %(sends)s 次，人工决定重发 %(decided)s 次。"),
)
_OWNER = ("dead_owner", N_("账号 %(guid)s 仍归已消失的执行通道 %(lane_id)s，没有被接管。"))
_RATE = (
    "over_rate",
    N_("账号 %(guid)s 在截至 %(at)s 的 60 秒内发出 %(sends)s 条，上限 %(allowed)s 条。"),
)
_JOB_RATE = (
    "over_job_rate",
    N_("作业 %(job_id)s 在截至 %(at)s 的 60 秒内发出 %(sends)s 条，速率上限 %(allowed)s 条。"),
)
_GATEWAY_RATE = (
    "over_gateway_rate",
    N_("网关 %(gateway)s 在截至 %(at)s 的 60 秒内发出 %(sends)s 条，上限 %(allowed)s 条。"),
)
_STOP = (
    "claimed_while_stopped",
    N_(
        "作业 %(job_id)s 在 %(at)s 已是 %(status)s，此后到再次开始之间仍有 %(calls)s 次发送，"
        "最早在 %(sent_at)s。"
    ),
)


def _listed(name: str, kind: tuple[str, str], **params: object) -> Iterator[Finding]:
    code, text = kind
    for row in run_query(name, **params):
        yield Finding(code, text, row)


def _recount(shards: Iterable[Mapping[str, Any]]) -> Mapping[int, _Recount]:
    found: dict[int, _Recount] = defaultdict(_Recount)
    for row in shards:
        job = found[row["job_id"]]
        counted = dict(zip(_COUNTERS, row["counted"], strict=True))
        job.shards += 1
        job.total += counted["total"]
        job.pending += counted["pending"]
        job.unsettled += counted["pending"] + counted["submitted"]
        job.spent += row["spent"]
        job.statuses.add(row["status"])
    return found


def _shard_findings(shards: Iterable[Mapping[str, Any]]) -> Iterator[Finding]:
    for row in shards:
        where = {"job_id": row["job_id"], "ordinal": row["ordinal"]}
        if row["ordinal"] is None:
            yield Finding(
                "orphan_items",
                N_("作业 %(job_id)s 有 %(count)s 条不属于任何分片。"),
                where | {"count": row["counted"][0]},
            )
            continue
        for name, stored, counted in zip(_COUNTERS, row["stored"], row["counted"], strict=True):
            if stored != counted:
                yield Finding(
                    "shard_counter",
                    N_(
                        "作业 %(job_id)s 的 %(ordinal)s 号分片：%(counter)s 记为 %(stored)s，"
                        "实际 %(counted)s。"
                    ),
                    where | {"counter": name, "stored": stored, "counted": counted},
                )
        counted_by = dict(zip(_COUNTERS, row["counted"], strict=True))
        unsettled = counted_by["pending"] + counted_by["submitted"]
        if row["status"] in (ShardStatus.COMPLETED, ShardStatus.FAILED) and unsettled:
            yield Finding(
                "shard_settled",
                N_(
                    "作业 %(job_id)s 的 %(ordinal)s 号分片已是 %(status)s，"
                    "仍有 %(count)s 条没有了结。"
                ),
                where | {"status": row["status"], "count": unsettled},
            )


def _job_findings(
    jobs: Iterable[Mapping[str, Any]], recounts: Mapping[int, _Recount]
) -> Iterator[Finding]:
    for row in jobs:
        job_id, status = row["id"], JobStatus(row["status"])
        count = recounts.get(job_id, _Recount())
        if status is not JobStatus.PREPARING and row["total"] != count.total:
            yield Finding(
                "job_total",
                N_("作业 %(job_id)s：条目数记为 %(stored)s，实际 %(counted)s。"),
                {"job_id": job_id, "stored": row["total"], "counted": count.total},
            )
        spent = count.spent + row["resent"]
        if row["budget_used"] != spent:
            yield Finding(
                "budget_used",
                N_("作业 %(job_id)s：已用预算记为 %(stored)s，实际 %(counted)s。"),
                {"job_id": job_id, "stored": row["budget_used"], "counted": spent},
            )
        if row["budget_limit"] is not None and spent > row["budget_limit"]:
            yield Finding(
                "over_budget",
                N_("作业 %(job_id)s：发出 %(counted)s 条，超过预算 %(limit)s。"),
                {"job_id": job_id, "counted": spent, "limit": row["budget_limit"]},
            )
        left = _left_behind(status, count)
        if left:
            yield Finding(
                "job_ended",
                N_("作业 %(job_id)s 已是 %(status)s，仍有 %(count)s 条没有了结。"),
                {"job_id": job_id, "status": status.value, "count": left},
            )
        if status is JobStatus.COMPLETED and count.statuses & _OPEN_SHARDS:
            yield Finding(
                "job_shards",
                N_("作业 %(job_id)s 已是 %(status)s，仍有没结束的分片。"),
                {"job_id": job_id, "status": status.value},
            )


_OPEN_SHARDS = {ShardStatus.PENDING, ShardStatus.RUNNING, ShardStatus.PAUSED}


def _left_behind(status: JobStatus, count: _Recount) -> int:
    """Items that a job in its end must not have any more.

    A cancelled job may still have submitted items: they stay in the reconciliation queue.
    """
    match status:
        case JobStatus.COMPLETED:
            return count.unsettled
        case JobStatus.CANCELLED:
            return count.pending
        case JobStatus.REJECTED:
            return count.total
        case _:
            return 0


def _submitted(found: Iterable[Mapping[str, Any]]) -> Iterator[Finding]:
    texts = {
        "no_call": N_("条目 %(item_id)s（作业 %(job_id)s）已提交，却没有对应的调用 %(call_id)s。"),
        "foreign_call": N_(
            "条目 %(item_id)s（作业 %(job_id)s）指向的调用 %(call_id)s 并不包含它。"
        ),
        "forgotten": N_(
            "条目 %(item_id)s（作业 %(job_id)s）等待的调用 %(call_id)s 已经结束，结果没有记下。"
        ),
    }
    for row in found:
        yield Finding(row["fault"], texts[row["fault"]], row)


def _open_calls(found: Iterable[Mapping[str, Any]]) -> Iterator[Finding]:
    for row in found:
        if row["waiting"] != row["items"]:
            yield Finding(
                "open_call",
                N_(
                    "调用 %(call_id)s（作业 %(job_id)s）没有结果，"
                    "它的 %(items)s 条里只有 %(waiting)s 条在等它。"
                ),
                row,
            )
        if row["dead"]:
            yield Finding(
                "orphan_call",
                N_("调用 %(call_id)s（作业 %(job_id)s）的执行通道已消失，条目没有转为存疑。"),
                row,
            )
