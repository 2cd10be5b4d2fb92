"""Why a job or shard does not move, and what to do about it: one sentence and a cure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from batches.domain.actors import named
from batches.domain.problems import Term
from batches.domain.states import (
    PAUSE_LABELS,
    SHARD_LABELS,
    JobStatus,
    PauseReason,
    ShardStatus,
)
from batches.domain.text import N_
from batches.models import Event, Job, Shard

from .ground import Ground, Standing
from .progress import Progress
from .reasons import RECONCILE, Why
from .why_running import why_running
from .why_tripped import why_breaker, why_permission, why_shard

__all__ = ["Why", "why_each", "why_not_moving"]


def why_each(
    jobs: Iterable[Job],
    *,
    progress: Mapping[int, Progress] | None = None,
    standing: Standing | None = None,
) -> dict[int, Why]:
    """The answer for each of many jobs, by queries whose number hardly depends on how many.

    `progress` and `standing` by job spare a query each, if the caller has them.
    """
    jobs = list(jobs)
    ground = Ground(jobs, progress=progress, standing=standing)
    return {job.pk: _why(job, ground) for job in jobs}


def why_not_moving(job: Job, shard: Shard | None = None, *, queued: bool | None = None) -> Why:
    """Answers for any status; a handful of small queries, none over items in a lump.

    `queued` tells whether a lane is waiting in the queue, if the caller knows.
    """
    if shard is not None and (said := _shard(job, shard)) is not None:
        return said
    return _why(job, Ground([job], shard=shard), queued=queued)


def _why(job: Job, ground: Ground, *, queued: bool | None = None) -> Why:
    match JobStatus(job.status):
        case JobStatus.RUNNING:
            return why_running(job, ground, queued=queued)
        case JobStatus.PAUSED:
            return _paused(job, ground)
        case JobStatus.PAUSING:
            return Why(
                "pausing",
                N_("正在暂停：不再取新条目，等在途的 %(count)s 条出结果。"),
                {"count": _progress(job, ground).inflight},
                level="info",
            )
        case JobStatus.VERIFYING | JobStatus.TERMINATED as status:
            return _unproven(_progress(job, ground), status)
        case status:
            return _PLAIN[status]


_PLAIN: Mapping[JobStatus, Why] = {
    JobStatus.PREPARING: Why("preparing", N_("正在读取并校验文件。"), level="info"),
    JobStatus.AWAITING: Why(
        "awaiting",
        N_("文件已校验，还没有人确认启动。"),
        cure_text=N_("核对预览后点「确认并启动」。"),
        level="warn",
    ),
    JobStatus.REJECTED: Why(
        "rejected",
        N_("文件没有通过校验，没有生成任何条目。"),
        cure_text=N_("看校验报告里的原因，改正后重新上传。"),
        level="warn",
    ),
    JobStatus.CANCELLING: Why(
        "cancelling", N_("正在取消：剩余条目正在置为「已放弃」，等在途的出结果。"), level="info"
    ),
    JobStatus.TERMINATING: Why("terminating", N_("正在终止：正在切断在途的请求。"), level="info"),
    JobStatus.COMPLETED: Why("completed", N_("全部条目已了结。")),
    JobStatus.CANCELLED: Why("cancelled", N_("作业已取消，剩余条目已放弃。")),
}


def _paused(job: Job, ground: Ground) -> Why:
    """Who or what stopped it, with the cure for that."""
    match job.pause_reason:
        case PauseReason.BUDGET if job.budget_used < (job.budget_limit or 0):
            return Why(
                "budget_raised",
                N_("预算用完后已提高到 %(limit)s 条，还没有继续。"),
                {"limit": job.budget_limit},
                cure_text=N_("点「继续」。"),
                level="warn",
            )
        case PauseReason.BUDGET:
            return Why(
                "budget",
                N_("预算 %(limit)s 条已用完，自动暂停。"),
                {"limit": job.budget_limit},
                cure_text=N_("核对结果后提高预算，再继续。"),
                level="warn",
            )
        case PauseReason.STAGE:
            reached = job.stages[min(job.stages_passed, len(job.stages) - 1)] if job.stages else 0
            return Why(
                "stage",
                N_("到达放量检查点 %(reached)s 条（第 %(number)s 个，共 %(count)s 个）。"),
                {
                    "reached": reached,
                    "number": job.stages_passed + 1,
                    "count": len(job.stages),
                },
                cure_text=N_("看过结果没有问题，就确认放量并继续。"),
                level="warn",
            )
        case PauseReason.BREAKER:
            return why_breaker(job, ground)
        case PauseReason.PERMISSION:
            return why_permission(job, ground)
        case PauseReason.OPERATOR | "":
            return _paused_by(
                "operator",
                _last(ground.stops.get(job.pk, ()), kinds=("job.pausing", "job.paused")),
                cure_text=N_("需要时点「继续」，不会重发已提交的条目。"),
            )
        case reason:
            label = PAUSE_LABELS.get(PauseReason(reason), reason)
            return Why(
                reason,
                N_("自动暂停：%(label)s。"),
                {"label": Term(label)},
                cure_text=_CURES.get(reason, N_("处理好原因后点「继续」。")),
                level="warn",
            )


_CURES: Mapping[str, str] = {
    PauseReason.MISSED_START.value: N_("确认仍要发送后点「继续」。"),
}


def _paused_by(code: str, event: Event | None, *, cure_text: str) -> Why:
    if event is None:
        return Why(code, N_("已暂停。"), cure_text=cure_text, level="warn")
    params = {
        "who": named(event.actor_name),
        "at": event.at,
        "reason": event.reason,
    }
    text = (
        N_("%(who)s 在 %(at)s 暂停：%(reason)s。")
        if event.reason
        else N_("%(who)s 在 %(at)s 暂停。")
    )
    return Why(code, text, params, cure_text=cure_text, level="warn")


def _last(events: Iterable[Event], *, kinds: tuple[str, ...]) -> Event | None:
    """The latest such act; a move that the system made to complete one is not an act."""
    acts = (event for event in events if event.data.get("from") != "pausing")
    return next((event for event in acts if event.kind in kinds), None)


def _shard_stops(job: Job, shard: Shard) -> Iterable[Event]:
    found = Event.objects.filter(job=job, kind="shard.paused", shard_ordinal=shard.ordinal)
    return found.order_by("-id")[:1]


def _progress(job: Job, ground: Ground) -> Progress:
    return ground.progress.get(job.pk, Progress())


def _unproven(sums: Progress, status: JobStatus) -> Why:
    unproven = sums.submitted - sums.inflight
    if status is JobStatus.TERMINATED:
        if not sums.in_doubt:
            return Why(
                "terminated",
                N_("已强制终止，没有存疑条目。"),
                cure_text=N_("需要时可以继续。"),
                level="warn",
            )
        return Why(
            "terminated_in_doubt",
            N_("已强制终止，%(count)s 条存疑（不知道是否已送达）。"),
            {"count": sums.in_doubt},
            cure_text=N_("先到「待核实」核实，才能继续。"),
            cure_url_name=RECONCILE,
            level="warn",
        )
    if sums.in_doubt:
        return Why(
            "verifying_in_doubt",
            N_("全部发出；%(unproven)s 条等待确认，其中 %(count)s 条存疑，不会自己结束。"),
            {"unproven": unproven, "count": sums.in_doubt},
            cure_text=N_("到「待核实」核实存疑条目。"),
            cure_url_name=RECONCILE,
            level="warn",
        )
    return Why(
        "verifying",
        N_("全部发出，%(unproven)s 条等待确认。"),
        {"unproven": unproven},
        cure_text=N_("长时间没有确认的，可到「待核实」核实。"),
        cure_url_name=RECONCILE,
        level="info",
    )


def _shard(job: Job, shard: Shard) -> Why | None:
    """What the shard itself answers; None where its job or its account decides."""
    status = ShardStatus(shard.status)
    if status is ShardStatus.PAUSED:
        if shard.reason in ("", PauseReason.OPERATOR):
            return _paused_by(
                "shard_paused",
                _last(_shard_stops(job, shard), kinds=("shard.paused",)),
                cure_text=N_("需要时点「继续分片」。"),
            )
        return why_shard(shard) or Why(
            "shard_" + shard.reason,
            N_("这个分片自动暂停：%(label)s。其他分片照常。"),
            {"label": Term(PAUSE_LABELS.get(PauseReason(shard.reason), shard.reason))},
            cure_text=_CURES.get(shard.reason, N_("处理好原因后点「继续分片」。")),
            level="warn",
        )
    if status in (ShardStatus.PENDING, ShardStatus.RUNNING):
        return None
    return Why("shard_settled", N_("分片%(label)s。"), {"label": Term(SHARD_LABELS[status])})
