"""States of job, shard and item, and every arrow between them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from .text import N_


class JobStatus(StrEnum):
    """What an operator sees of a whole job."""

    PREPARING = "preparing"  # the file is being read and checked; nothing can be sent
    AWAITING = "awaiting"  # checked and loaded; waits for a person to confirm
    RUNNING = "running"  # items may be claimed
    PAUSING = "pausing"  # no further claim; calls in flight are still being recorded
    PAUSED = "paused"  # nothing in flight; continues on request
    VERIFYING = "verifying"  # nothing left to send, some submitted items unconfirmed
    COMPLETED = "completed"  # every item confirmed, failed or abandoned
    CANCELLING = "cancelling"  # no further claim; the rest is being abandoned
    CANCELLED = "cancelled"  # final
    TERMINATING = "terminating"  # calls in flight are being cut off
    TERMINATED = "terminated"  # cut off; resumes only once its in-doubt items are reconciled
    REJECTED = "rejected"  # the file was refused; no items exist


class ShardStatus(StrEnum):
    """One account's part of a job, or a hash slice of it."""

    PENDING = "pending"  # no lane has taken it up yet
    RUNNING = "running"  # taken up; a hold (backoff, gateway) does not change this
    PAUSED = "paused"  # a person or the breaker stopped this shard alone
    COMPLETED = "completed"  # every item settled, at least one not failed
    FAILED = "failed"  # every item settled, all of them failed
    CANCELLED = "cancelled"  # its job was cancelled


class ItemState(StrEnum):
    """One target."""

    PENDING = "pending"  # not sent; may be claimed
    SUBMITTED = "submitted"  # claimed: the request may have left; never claimed again by itself
    CONFIRMED = "confirmed"  # took effect
    FAILED = "failed"  # definitely did not take effect
    ABANDONED = "abandoned"  # given up by a person before it was sent


class PauseReason(StrEnum):
    """Why a job or shard is paused."""

    OPERATOR = "operator"
    BUDGET = "budget"
    STAGE = "stage"
    BREAKER = "breaker"
    CREDENTIAL = "credential"
    PERMISSION = "permission"
    MISSED_START = "missed_start"


class HoldReason(StrEnum):
    """Why a running account sends nothing; ends by itself at `hold_until`.

    The rate gate, the job's hours and an item's backoff hold nobody: they are when work is due.
    """

    BACKOFF = "backoff"
    GATEWAY = "gateway"


J, S, I = JobStatus, ShardStatus, ItemState  # noqa: E741 - table shorthand

JOB_ARROWS: Mapping[JobStatus, frozenset[JobStatus]] = {
    # intake ends in a loaded job, in a refusal, or a person gives the upload up
    J.PREPARING: frozenset({J.AWAITING, J.REJECTED, J.CANCELLED}),
    # a corrected file mapping is read again; confirm starts; a person discards (through
    # `cancelling`, because the items are there already and are abandoned in bounded steps)
    J.AWAITING: frozenset({J.PREPARING, J.RUNNING, J.CANCELLING}),
    J.RUNNING: frozenset(
        {J.PAUSING, J.PAUSED, J.VERIFYING, J.COMPLETED, J.CANCELLING, J.TERMINATING}
    ),
    # resume may come before the last answer does; the last answer may leave nothing to pause
    J.PAUSING: frozenset(
        {J.PAUSED, J.RUNNING, J.VERIFYING, J.COMPLETED, J.CANCELLING, J.TERMINATING}
    ),
    J.PAUSED: frozenset({J.RUNNING, J.CANCELLING, J.TERMINATING}),
    # a late refusal or an operator's "not delivered" puts items back
    J.VERIFYING: frozenset({J.RUNNING, J.COMPLETED, J.CANCELLING}),
    # failed items are retried on request
    J.COMPLETED: frozenset({J.RUNNING}),
    J.CANCELLING: frozenset({J.CANCELLED}),
    J.CANCELLED: frozenset(),
    J.TERMINATING: frozenset({J.TERMINATED}),
    J.TERMINATED: frozenset({J.RUNNING, J.CANCELLING}),
    J.REJECTED: frozenset({J.PREPARING}),
}

SHARD_ARROWS: Mapping[ShardStatus, frozenset[ShardStatus]] = {
    S.PENDING: frozenset({S.RUNNING, S.PAUSED, S.COMPLETED, S.FAILED, S.CANCELLED}),
    S.RUNNING: frozenset({S.PAUSED, S.COMPLETED, S.FAILED, S.CANCELLED}),
    # late answers may settle a paused shard's last items
    S.PAUSED: frozenset({S.RUNNING, S.COMPLETED, S.FAILED, S.CANCELLED}),
    S.COMPLETED: frozenset({S.RUNNING}),  # failed items retried
    S.FAILED: frozenset({S.RUNNING}),  # failed items retried
    S.CANCELLED: frozenset(),
}

ITEM_ARROWS: Mapping[ItemState, frozenset[ItemState]] = {
    I.PENDING: frozenset({I.SUBMITTED, I.ABANDONED}),
    # back to pending only after a definite negative or an operator's audited decision;
    # abandoned when that negative arrives after its job was cancelled
    I.SUBMITTED: frozenset({I.CONFIRMED, I.FAILED, I.PENDING, I.ABANDONED}),
    I.CONFIRMED: frozenset(),
    I.FAILED: frozenset({I.PENDING}),  # an operator retries it
    I.ABANDONED: frozenset(),
}


def job_sources(target: JobStatus) -> frozenset[JobStatus]:
    """States from which a job may move to `target`."""
    return frozenset(source for source, targets in JOB_ARROWS.items() if target in targets)


def shard_sources(target: ShardStatus) -> frozenset[ShardStatus]:
    """States from which a shard may move to `target`."""
    return frozenset(source for source, targets in SHARD_ARROWS.items() if target in targets)


def item_sources(target: ItemState) -> frozenset[ItemState]:
    """States from which an item may move to `target`."""
    return frozenset(source for source, targets in ITEM_ARROWS.items() if target in targets)


JOB_FINAL = frozenset(state for state, targets in JOB_ARROWS.items() if not targets)
#: Nothing of these jobs moves by itself any more.
JOB_AT_REST = frozenset({J.COMPLETED, J.CANCELLED, J.TERMINATED, J.REJECTED, J.AWAITING, J.PAUSED})
#: Shards of which a lane may claim items, if their job is running.
SHARD_RUNNABLE = frozenset({S.PENDING, S.RUNNING})
ITEM_SETTLED = frozenset({I.CONFIRMED, I.FAILED, I.ABANDONED})

JOB_LABELS: Mapping[JobStatus, str] = {
    J.PREPARING: N_("导入中"),
    J.AWAITING: N_("待确认"),
    J.RUNNING: N_("运行中"),
    J.PAUSING: N_("暂停中…"),
    J.PAUSED: N_("已暂停"),
    J.VERIFYING: N_("核实中"),
    J.COMPLETED: N_("已完成"),
    J.CANCELLING: N_("取消中…"),
    J.CANCELLED: N_("已取消"),
    J.TERMINATING: N_("终止中…"),
    J.TERMINATED: N_("已终止"),
    J.REJECTED: N_("导入失败"),
}
SHARD_LABELS: Mapping[ShardStatus, str] = {
    S.PENDING: N_("待跑"),
    S.RUNNING: N_("运行中"),
    S.PAUSED: N_("已暂停"),
    S.COMPLETED: N_("已完成"),
    S.FAILED: N_("已失败"),
    S.CANCELLED: N_("已取消"),
}
ITEM_LABELS: Mapping[ItemState, str] = {
    I.PENDING: N_("待执行"),
    I.SUBMITTED: N_("已提交"),
    I.CONFIRMED: N_("已确认"),
    I.FAILED: N_("已失败"),
    I.ABANDONED: N_("已放弃"),
}
PAUSE_LABELS: Mapping[PauseReason, str] = {
    PauseReason.OPERATOR: N_("人工暂停"),
    PauseReason.BUDGET: N_("预算用完"),
    PauseReason.STAGE: N_("到达放量检查点"),
    PauseReason.BREAKER: N_("熔断"),
    PauseReason.CREDENTIAL: N_("账号登录失效"),
    PauseReason.PERMISSION: N_("没有接口权限"),
    PauseReason.MISSED_START: N_("错过开始时间"),
}
HOLD_LABELS: Mapping[HoldReason, str] = {
    HoldReason.BACKOFF: N_("退避等待重试"),
    HoldReason.GATEWAY: N_("网关不可达"),
}
