"""Failure categories: what kind of failure, whether it may be tried again, what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .text import N_


class Category(StrEnum):
    """Named kinds of failure; never one lump."""

    RETRY_SYSTEM = "retry_system"  # gateway busy, nothing executed
    RATE_LIMITED = "rate_limited"
    CREDENTIAL = "credential"
    PERMISSION = "permission"
    TARGET_INVALID = "target_invalid"
    TAG_INVALID = "tag_invalid"
    QUOTA_LIMIT = "quota_limit"
    CONTENT_INVALID = "content_invalid"
    MESSAGE_STATE = "message_state"
    PARAM = "param"
    OTHER = "other"  # a definite refusal with a code not in the table
    UNREACHABLE = "unreachable"  # connection refused, DNS, TLS: never sent
    RENDER = "render"  # the request could not be built: never sent
    TIMEOUT = "timeout"  # no answer in time: in doubt
    RESET = "reset"  # connection lost after the request was written: in doubt
    SERVER_ERROR = "server_error"  # 5xx without a definite refusal: in doubt
    UNREADABLE = "unreadable"  # an answer that fits no rule: in doubt
    LOST = "lost"  # the sending process died: in doubt
    ABORTED = "aborted"  # cut off by a terminate or at a lane's end: in doubt
    NOT_DELIVERED = "not_delivered"  # an operator's finding


@dataclass(frozen=True, slots=True)
class CategoryInfo:
    """How one category is shown and treated."""

    label: str
    advice: str
    #: the engine may try again by itself, up to the job's max attempts
    auto_retry: bool
    #: an operator's "retry failed" takes these items by default
    operator_retry: bool


_C = CategoryInfo
CATEGORIES: dict[Category, CategoryInfo] = {
    Category.RETRY_SYSTEM: _C(N_("网关繁忙"), N_("稍后重试失败条目"), True, True),
    Category.RATE_LIMITED: _C(N_("触发限流"), N_("降低账号速率后重试"), True, True),
    Category.CREDENTIAL: _C(N_("账号登录失效"), N_("重新登录该账号后重试"), False, True),
    Category.PERMISSION: _C(N_("没有接口权限"), N_("请管理员开通权限后重试"), False, True),
    Category.TARGET_INVALID: _C(
        N_("目标无效"), N_("核对客户或群 ID，修正后重新上传"), False, False
    ),
    Category.TAG_INVALID: _C(N_("标签无效"), N_("核对标签 ID，修正后重新上传"), False, False),
    Category.QUOTA_LIMIT: _C(N_("超出配额"), N_("等待配额恢复或拆分名单"), False, True),
    Category.CONTENT_INVALID: _C(N_("内容不合规"), N_("修改消息内容后新建作业"), False, False),
    Category.MESSAGE_STATE: _C(N_("消息状态不允许"), N_("核对消息状态"), False, False),
    Category.PARAM: _C(N_("参数错误"), N_("请把错误码告诉开发人员"), False, False),
    Category.OTHER: _C(N_("其他拒绝"), N_("查看错误码与原文"), False, True),
    Category.UNREACHABLE: _C(N_("网关连不上"), N_("检查网关后重试"), True, True),
    Category.RENDER: _C(N_("内容无法生成"), N_("检查模板与该行数据"), False, False),
    Category.TIMEOUT: _C(N_("等待应答超时"), N_("先核实是否已送达"), False, False),
    Category.RESET: _C(N_("连接中断"), N_("先核实是否已送达"), False, False),
    Category.SERVER_ERROR: _C(N_("网关内部错误"), N_("先核实是否已送达"), False, False),
    Category.UNREADABLE: _C(N_("应答无法识别"), N_("先核实是否已送达"), False, False),
    Category.LOST: _C(N_("执行进程中断"), N_("先核实是否已送达"), False, False),
    Category.ABORTED: _C(N_("被强制终止"), N_("先核实是否已送达"), False, False),
    Category.NOT_DELIVERED: _C(N_("核实为未送达"), N_("可以重试"), False, True),
}


#: nobody knows whether the target was reached: never tried again, not even on request
IN_DOUBT: frozenset[Category] = frozenset(
    {
        Category.TIMEOUT,
        Category.RESET,
        Category.SERVER_ERROR,
        Category.UNREADABLE,
        Category.LOST,
        Category.ABORTED,
    }
)


def category_info(value: str) -> CategoryInfo:
    """Look up a stored category; an unknown one is shown as a plain refusal."""
    try:
        return CATEGORIES[Category(value)]
    except ValueError:
        return CATEGORIES[Category.OTHER]
