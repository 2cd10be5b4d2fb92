"""Send a text message to each customer."""

from __future__ import annotations

from batches.domain.columns import CUSTOMER_ALIASES, TARGET
from batches.domain.text import N_
from batches.gateways.base import Operation

from .base import ColumnSpec, ParamSpec
from .checks import id_problem
from .content import ACCOUNT_COLUMN, NAME_COLUMN, ContentAction


class SendText(ContentAction):
    """One text message per row."""

    name = "send_text"
    operation = Operation.SEND_TEXT
    label = N_("发送文本消息")
    description = N_("给名单中的每位客户各发一条文本消息，内容可以带上该行的列。")
    #: the account's own echo of a message is the only event that was seen to prove one
    confirm_policies = ("response", "callback", "lookup", "manual")

    @property
    def columns(self) -> tuple[ColumnSpec, ...]:
        # A group's id passes: these gateways take it as the addressee of a text too.
        target = ColumnSpec(TARGET, N_("客户 ID"), CUSTOMER_ALIASES, True, id_problem)
        return (ACCOUNT_COLUMN, target, NAME_COLUMN)

    @property
    def params(self) -> tuple[ParamSpec, ...]:
        return (self._content_param(N_("消息内容")),)
