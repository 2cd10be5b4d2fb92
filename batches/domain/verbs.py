"""What a person may do to a job: each verb with its word, its permission and its states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from .states import JobStatus, job_sources
from .text import N_

#: longest reason that the audit keeps
REASON_MAX = 300


class Verb(StrEnum):
    """Acts of an operator; the value is also the word on the command line."""

    CONFIRM = "confirm"
    PAUSE = "pause"
    RESUME = "resume"
    CONFIRM_STAGE = "confirm_stage"
    RETRY_FAILED = "retry_failed"
    RAISE_BUDGET = "raise_budget"
    SET_RATE = "set_rate"
    SET_HOURS = "set_hours"
    SET_START = "set_start"
    SET_BREAKER = "set_breaker"
    SET_PRIORITY = "set_priority"
    PAUSE_SHARD = "pause_shard"
    RESUME_SHARD = "resume_shard"
    CANCEL = "cancel"
    TERMINATE = "terminate"
    RECONCILE = "reconcile"


@dataclass(frozen=True, slots=True)
class VerbInfo:
    """How one verb is called, who may use it, and when."""

    label: str
    permission: str
    sources: frozenset[JobStatus]
    needs_reason: bool = False


_S = JobStatus
#: a job that still has, or may get again, something to send
_LIVE = frozenset({_S.AWAITING, _S.RUNNING, _S.PAUSING, _S.PAUSED, _S.VERIFYING, _S.TERMINATED})
#: what starts, stops and takes up; also what makes jobs and sends a test
OPERATE = "batches.operate_job"
#: accounts in and out of batch sending, their rates, and files of them
CHANGE_ACCOUNTS = "batches.change_account"
_APPROVE = "batches.approve_job"

VERBS: Mapping[Verb, VerbInfo] = {
    Verb.CONFIRM: VerbInfo(N_("确认启动"), OPERATE, frozenset({_S.AWAITING})),
    # `pausing` is on its way already: the wish is fulfilled
    Verb.PAUSE: VerbInfo(N_("暂停"), OPERATE, job_sources(_S.PAUSED) - {_S.PAUSING}),
    # not from `awaiting` (that is confirm), `verifying` or `completed` (that is retry)
    Verb.RESUME: VerbInfo(N_("继续"), OPERATE, frozenset({_S.PAUSING, _S.PAUSED, _S.TERMINATED})),
    Verb.CONFIRM_STAGE: VerbInfo(
        N_("确认放量并继续"), _APPROVE, frozenset({_S.PAUSING, _S.PAUSED})
    ),
    # a running job takes its failed items up again without a change of status
    Verb.RETRY_FAILED: VerbInfo(
        N_("重试失败条目"),
        OPERATE,
        frozenset({_S.RUNNING, _S.PAUSING, _S.PAUSED, _S.VERIFYING, _S.COMPLETED}),
    ),
    Verb.RAISE_BUDGET: VerbInfo(
        N_("提高预算"), _APPROVE, _LIVE | {_S.COMPLETED}, needs_reason=True
    ),
    Verb.SET_RATE: VerbInfo(N_("调整速率"), OPERATE, _LIVE | {_S.COMPLETED}),
    Verb.SET_HOURS: VerbInfo(N_("调整允许时段"), OPERATE, _LIVE | {_S.COMPLETED}),
    # only while nothing was sent; `verifying` and the like have sent something
    Verb.SET_START: VerbInfo(
        N_("改开始时间"), OPERATE, frozenset({_S.AWAITING, _S.RUNNING, _S.PAUSING, _S.PAUSED})
    ),
    Verb.SET_BREAKER: VerbInfo(N_("调整熔断"), OPERATE, _LIVE | {_S.COMPLETED}),
    Verb.SET_PRIORITY: VerbInfo(N_("调整优先级"), OPERATE, _LIVE | {_S.COMPLETED}),
    Verb.PAUSE_SHARD: VerbInfo(N_("暂停分片"), OPERATE, _LIVE),
    Verb.RESUME_SHARD: VerbInfo(N_("继续分片"), OPERATE, _LIVE),
    Verb.CANCEL: VerbInfo(
        N_("取消"),
        "batches.cancel_job",
        job_sources(_S.CANCELLING) | {_S.PREPARING},
        needs_reason=True,
    ),
    Verb.TERMINATE: VerbInfo(
        N_("强制终止"), "batches.terminate_job", job_sources(_S.TERMINATING), needs_reason=True
    ),
    # a truth is welcome whatever became of the job
    Verb.RECONCILE: VerbInfo(
        N_("核实条目"), "batches.reconcile_item", frozenset(_S), needs_reason=True
    ),
}


#: verbs that set how a job runs; they are no way on for one that stands
SETTINGS = frozenset(
    {Verb.SET_RATE, Verb.SET_HOURS, Verb.SET_START, Verb.SET_BREAKER, Verb.SET_PRIORITY}
)


def verbs_for(status: JobStatus) -> tuple[Verb, ...]:
    """The verbs that a job in `status` allows, in the order of the screens."""
    return tuple(verb for verb, info in VERBS.items() if status in info.sources)
