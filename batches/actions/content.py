"""Actions that bring a text made from a template to each target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from batches.domain.columns import ACCOUNT, ACCOUNT_ALIASES, NAME, NAME_ALIASES
from batches.domain.errors import InvalidInputError
from batches.domain.problems import Problem
from batches.domain.rendering import Template, compile_template, syntax_problems
from batches.domain.text import N_
from batches.gateways.base import Operation, TargetSpec

from .base import Action, ColumnSpec, ParamSpec
from .checks import any_value, damaged_problem, id_problem

ACCOUNT_COLUMN = ColumnSpec(ACCOUNT, N_("账号"), ACCOUNT_ALIASES, True, id_problem)
NAME_COLUMN = ColumnSpec(NAME, N_("姓名"), NAME_ALIASES, False, any_value)

CONTENT = "content"


@dataclass(frozen=True, slots=True)
class CompiledContent:
    """A template bound to a file, and the limit of what it may become."""

    operation: Operation
    template: Template
    max_bytes: int

    @property
    def shared_content(self) -> bool:
        # A group's welcome is set by one call per group, whatever it says.
        return self.operation is Operation.SEND_TEXT and not self.template.placeholders

    @property
    def warnings(self) -> tuple[Problem, ...]:
        return self.template.warnings

    def check_row(self, target: str, fields: Sequence[str]) -> list[Problem]:
        problems: list[Problem] = []
        for name, value in self.template.values_in(fields):
            if not value:
                problems.append(
                    Problem(
                        "placeholder_empty",
                        N_(
                            "消息用到了 {%(name)s}，但这一行该列是空的。"
                            "请补上，或从消息中去掉 {%(name)s}。"
                        ),
                        {"name": name},
                    )
                )
            elif damaged := damaged_problem(value):
                problems.append(
                    Problem(
                        "placeholder_damaged",
                        N_("消息用到了 {%(name)s}，但这一行的值不能用：%(why)s"),
                        {"name": name, "why": damaged},
                    )
                )
        size = len(self.template.render(fields).encode("utf-8", "replace"))
        if size > self.max_bytes:
            problems.append(
                Problem(
                    "content_too_long",
                    N_(
                        "这一行生成的内容有 %(size)s 字节，超过上限 %(limit)s 字节。"
                        "请缩短消息或这一行的值。"
                    ),
                    {"size": size, "limit": self.max_bytes},
                )
            )
        return problems

    def to_target(self, target: str, fields: Sequence[str]) -> TargetSpec:
        return TargetSpec(target, self.template.render(fields))


class ContentAction(Action):
    """An action with one template parameter, `content`."""

    def __init__(self, *, max_bytes: int) -> None:
        self.max_bytes = max_bytes

    def validate_params(self, params: Mapping[str, object]) -> list[Problem]:
        problems = super().validate_params(params)
        if not problems:
            problems.extend(syntax_problems(str(params[CONTENT])))
        return problems

    def compile(
        self, params: Mapping[str, object], columns: Sequence[str], mapping: Mapping[str, int]
    ) -> CompiledContent:
        if problems := self.validate_params(params):
            raise InvalidInputError(*problems)
        template = compile_template(str(params[CONTENT]), columns, mapping)
        return CompiledContent(self.operation, template, self.max_bytes)

    def _content_param(self, label: str) -> ParamSpec:
        return ParamSpec(
            CONTENT,
            label,
            "textarea",
            required=True,
            help=N_("可以用 {列名} 引用文件中的列，例如 {姓名}。要原样显示大括号，请写 {{ 或 }}。"),
            max_bytes=self.max_bytes,
            is_template=True,
        )
