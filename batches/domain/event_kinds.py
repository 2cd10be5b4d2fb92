"""Kinds of events and their words in the timeline."""

from __future__ import annotations

from collections.abc import Mapping

from .text import N_

#: acts of a person, at the console or at a command line
VERB_EVENTS: Mapping[str, str] = {
    "job.created": N_("创建作业"),
    "job.reread": N_("重新读取文件"),
    "job.confirmed": N_("确认启动"),
    "job.pausing": N_("暂停（等待在途结果）"),
    "job.paused": N_("已暂停"),
    "job.resumed": N_("继续"),
    "job.stage_confirmed": N_("确认放量"),
    "job.cancelling": N_("取消"),
    "job.cancelled": N_("已取消"),
    "job.terminating": N_("强制终止"),
    "job.retried": N_("重试失败条目"),
    "job.budget_raised": N_("提高预算"),
    "job.rate_set": N_("调整速率"),
    "job.hours_set": N_("调整允许时段"),
    "job.start_set": N_("改开始时间"),
    "job.breaker_set": N_("调整熔断"),
    "job.priority_set": N_("调整优先级"),
    "shard.paused": N_("暂停分片"),
    "shard.resumed": N_("继续分片"),
    "item.delivered": N_("核实为已送达"),
    "item.not_delivered": N_("核实为未送达"),
    "item.retried": N_("核实为未送达后重发"),
    "account.credential_restored": N_("账号登录恢复"),
    "accounts.loaded": N_("导入账号"),
    "account.added": N_("添加账号"),
    "account.changed": N_("修改账号"),
    "account.deleted": N_("删除账号"),
    "gateway.added": N_("添加网关"),
    "gateway.changed": N_("修改网关"),
    "gateway.deleted": N_("删除网关"),
    "user.added": N_("添加用户"),
    "user.changed": N_("修改用户"),
    "user.deleted": N_("删除用户"),
    "role.added": N_("添加角色"),
    "role.changed": N_("修改角色"),
    "role.deleted": N_("删除角色"),
    "account.enabled": N_("启用账号"),
    "account.disabled": N_("停用账号"),
    "account.test_sent": N_("测试发送"),
}
#: what happens by itself
ENGINE_EVENTS: Mapping[str, str] = {
    "job.loaded": N_("导入完成"),
    "job.rejected": N_("导入失败"),
    "job.running": N_("继续发送"),
    "job.verifying": N_("全部发出，等待核实"),
    "job.completed": N_("已完成"),
    "job.terminated": N_("已终止"),
    "job.tripped": N_("熔断，作业已停"),
    "shard.tripped": N_("熔断，分片已停"),
    "shard.credential_lost": N_("账号登录失效，分片已停"),
    "account.credential_lost": N_("账号登录失效"),
    "job.calls_lost": N_("执行进程中断，在途条目转为存疑"),
    "job.cannot_compile": N_("作业内容无法处理，没有发送"),
}
EVENT_LABELS: Mapping[str, str] = {**ENGINE_EVENTS, **VERB_EVENTS}
#: family of kinds → what one must be allowed to see to read its lines
GUARDS: Mapping[str, str] = {
    "gateway": "batches.view_gateway",
    "role": "auth.view_group",
    "user": "auth.view_user",
}


def family_of(kind: str) -> str:
    """What a kind is about: `gateway` of `gateway.changed`."""
    return kind.partition(".")[0]


def event_label(kind: str) -> str:
    """The word for a stored kind; an unknown kind is shown as it is."""
    return EVENT_LABELS.get(kind, kind)
