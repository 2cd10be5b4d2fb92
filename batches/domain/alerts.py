"""What a person has to look at: each kind of alert with its words and its cure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .states import PauseReason
from .text import N_


@dataclass(frozen=True, slots=True)
class AlertKind:
    """`label` is for a list of many, `text` the whole sentence with its cure."""

    label: str
    text: str


#: without an advance for so long, though nothing explains it, a shard is stuck
STUCK_SECONDS = 300.0
#: for so long work may wait for a lane; between two turns there is none for a moment
NO_LANE_SECONDS = 30.0

JOB_PAUSED = "job."
SHARDS_TRIPPED = "job.shards_tripped"
STUCK = "job.stuck"
IN_DOUBT = "job.in_doubt"
INTAKE = "job.intake_gave_up"
CREDENTIAL = "account.credential"
NO_LANE = "lanes.none"
REDIS = "redis.away"
GATEWAY = "gateway.unreachable"

#: pauses that wait for somebody who may not know of them; a person's own needs no alert
PAUSES: tuple[PauseReason, ...] = (
    PauseReason.BREAKER,
    PauseReason.BUDGET,
    PauseReason.STAGE,
    PauseReason.PERMISSION,
    PauseReason.MISSED_START,
)
ALERTS: Mapping[str, AlertKind] = {
    JOB_PAUSED + PauseReason.BREAKER: AlertKind(
        N_("作业熔断"),
        N_(
            "失败太多，作业因熔断自动暂停，还有 %(count)s 条没有发。"
            "看失败分类，处理好原因后点「继续」；会先各试一条。"
        ),
    ),
    JOB_PAUSED + PauseReason.BUDGET: AlertKind(
        N_("预算用完"),
        N_(
            "已发 %(used)s 条，预算用完，自动暂停，还有 %(count)s 条没有发。"
            "核对结果后提高预算再继续；已经提高的，直接点「继续」。"
        ),
    ),
    JOB_PAUSED + PauseReason.STAGE: AlertKind(
        N_("等待确认放量"),
        N_("已发 %(used)s 条，到达放量检查点，自动暂停。看过结果没有问题，就确认放量并继续。"),
    ),
    JOB_PAUSED + PauseReason.PERMISSION: AlertKind(
        N_("没有接口权限"),
        N_(
            "网关回答没有接口权限，作业自动暂停，还有 %(count)s 条没有发。"
            "请管理员开通接口权限后点「继续」。"
        ),
    ),
    JOB_PAUSED + PauseReason.MISSED_START: AlertKind(
        N_("错过开始时间"),
        N_("到了开始时间却一直发不出去，作业已暂停，没有补发。确认仍要发送后点「继续」。"),
    ),
    SHARDS_TRIPPED: AlertKind(
        N_("分片熔断"),
        N_(
            "%(shards)s 个分片熔断（账号 %(accounts)s），%(count)s 条没有发，其他分片照常。"
            "看失败分类，处理好原因后点「继续停下的分片」。"
        ),
    ),
    STUCK: AlertKind(
        N_("分片卡住"),
        N_(
            "%(shards)s 个分片卡住（账号 %(accounts)s）：%(count)s 条可以发送，"
            "却超过 %(minutes)s 分钟没有推进。"
            "检查执行进程的日志；重启执行进程不会重发已提交的条目。"
        ),
    ),
    IN_DOUBT: AlertKind(
        N_("存疑超时"),
        N_(
            "%(count)s 条存疑（不知道是否已送达），最早的已超过 %(minutes)s 分钟没有核实。"
            "请到待核实页处理，不会自动重发。"
        ),
    ),
    INTAKE: AlertKind(
        N_("文件读取失败"),
        N_(
            "读取文件时进程多次中断，没有导入任何条目。请拆分文件后重新上传，或联系管理员查看日志。"
        ),
    ),
    CREDENTIAL: AlertKind(
        N_("账号登录失效"),
        N_(
            "账号 %(account)s 登录失效，%(shards)s 个分片已暂停。"
            "重新登录账号，再到账号页点「已重新登录」。"
        ),
    ),
    NO_LANE: AlertKind(
        N_("没有执行进程"),
        N_(
            "没有执行进程在运行，%(jobs)s 个作业在等。"
            "启动执行进程（lanes 队列的 worker），作业会自己继续。"
        ),
    ),
    REDIS: AlertKind(
        N_("Redis 没有应答"),
        N_(
            "Redis 没有应答，执行进程因此停了，%(jobs)s 个作业在等，没有条目因此丢失。"
            "检查 Redis 是否在运行；恢复后作业会自己继续。"
        ),
    ),
    GATEWAY: AlertKind(
        N_("网关连不上"),
        N_(
            "网关 %(gateway)s 连不上，%(accounts)s 个账号在等，会自动再试，没有条目因此丢失。"
            "检查网关是否在运行、地址是否正确。"
        ),
    ),
}


def _shown(value: object) -> object:
    """Numbers are grouped as on every page."""
    return f"{value:,}" if isinstance(value, int) else value


def sentence(text: str, params: Mapping[str, object], gettext: Callable[[str], str]) -> str:
    """An alert's sentence as stored, in the language of `gettext`, with its values."""
    separator = gettext("、")
    shown = {
        key: separator.join(map(str, value)) if isinstance(value, list) else _shown(value)
        for key, value in params.items()
    }
    return gettext(text) % shown
