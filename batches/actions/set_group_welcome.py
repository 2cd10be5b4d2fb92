"""Set the welcome message of each group."""

from __future__ import annotations

from batches.domain.columns import GROUP_ALIASES, TARGET
from batches.domain.text import N_
from batches.gateways.base import Operation

from .base import ColumnSpec, ParamSpec
from .checks import group_id_problem
from .content import ACCOUNT_COLUMN, NAME_COLUMN, ContentAction


class SetGroupWelcome(ContentAction):
    """One group per row."""

    name = "set_group_welcome"
    operation = Operation.SET_GROUP_WELCOME
    label = N_("设置群欢迎语")
    description = N_("为名单中的每个群设置欢迎语；新成员入群时由企业微信发出。")

    @property
    def columns(self) -> tuple[ColumnSpec, ...]:
        target = ColumnSpec(TARGET, N_("群 ID"), GROUP_ALIASES, True, group_id_problem)
        return (ACCOUNT_COLUMN, target, NAME_COLUMN)

    @property
    def params(self) -> tuple[ParamSpec, ...]:
        return (self._content_param(N_("欢迎语")),)
