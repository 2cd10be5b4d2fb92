"""Add tags to customers, or remove them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from batches.domain.columns import CUSTOMER_ALIASES, TAG_ALIASES, TAGS, TARGET
from batches.domain.errors import InvalidInputError
from batches.domain.problems import Names, Problem, Term
from batches.domain.text import N_
from batches.gateways.base import Operation, TargetSpec

from .base import Action, ColumnSpec, ParamSpec
from .checks import any_value, customer_id_problem, id_problem
from .content import ACCOUNT_COLUMN, NAME_COLUMN

MAX_TAGS = 20
ADD, REMOVE = "add", "remove"
_SEPARATORS = re.compile(r"[|｜;；,，、\s\u200b\ufeff]+")
_TAGS_LABEL = N_("标签 ID")


def split_tags(text: str) -> tuple[str, ...]:
    """The tag ids in a cell or parameter, each once, in order."""
    return tuple(dict.fromkeys(filter(None, _SEPARATORS.split(text))))


def tags_problems(text: str) -> list[Problem]:
    """Why the tags in a non-empty text cannot be used."""
    tags = split_tags(text)
    problems = [
        Problem(
            "tag_malformed",
            N_("标签 ID“%(value)s”不能用：%(why)s"),
            {"value": tag[:40], "why": problem},
        )
        for tag in tags
        if (problem := id_problem(tag))
    ]
    if len(tags) > MAX_TAGS:
        problems.append(
            Problem(
                "tags_too_many",
                N_("有 %(count)s 个标签，一次最多 %(limit)s 个。请拆成几个作业。"),
                {"count": len(tags), "limit": MAX_TAGS},
            )
        )
    return problems


@dataclass(frozen=True, slots=True)
class CompiledTags:
    """Which tags each row gets: its own cell's, else the parameter's."""

    remove: bool
    default: tuple[str, ...]
    index: int | None
    operation: Operation = Operation.TAG_CUSTOMERS
    warnings: tuple[Problem, ...] = ()
    #: a request holds each customer's own tags
    shared_content: bool = True

    def check_row(self, target: str, fields: Sequence[str]) -> list[Problem]:
        cell = self._cell(fields)
        if split_tags(cell):
            return tags_problems(cell)
        if self.default:
            return []
        return [Problem("tags_empty", N_("这一行没有标签。请补上标签列，或在参数中填写标签 ID。"))]

    def to_target(self, target: str, fields: Sequence[str]) -> TargetSpec:
        tags = split_tags(self._cell(fields)) or self.default
        return (
            TargetSpec(target, remove_tags=tags) if self.remove else TargetSpec(target, tags=tags)
        )

    def _cell(self, fields: Sequence[str]) -> str:
        return fields[self.index] if self.index is not None and self.index < len(fields) else ""


class TagCustomers(Action):
    """One customer per row."""

    name = "tag_customers"
    operation = Operation.TAG_CUSTOMERS
    label = N_("批量打标签")
    description = N_("给名单中的每位客户添加或移除标签；标签取自该行的标签列或参数。")

    @property
    def columns(self) -> tuple[ColumnSpec, ...]:
        return (
            ACCOUNT_COLUMN,
            ColumnSpec(TARGET, N_("客户 ID"), CUSTOMER_ALIASES, True, customer_id_problem),
            NAME_COLUMN,
            # What a cell must hold depends on the parameter `tags`: see `check_row`.
            ColumnSpec(TAGS, N_("标签"), TAG_ALIASES, False, any_value),
        )

    @property
    def params(self) -> tuple[ParamSpec, ...]:
        return (
            ParamSpec(
                "mode",
                N_("方式"),
                "choice",
                required=False,
                choices=((ADD, N_("添加标签")), (REMOVE, N_("移除标签"))),
                default=ADD,
            ),
            ParamSpec(
                "tags",
                _TAGS_LABEL,
                "text",
                required=False,
                help=N_("多个标签用 | 或 ; 分隔，最多 20 个。文件有标签列时，以该行的标签为准。"),
                max_bytes=2000,
            ),
        )

    def validate_params(self, params: Mapping[str, object]) -> list[Problem]:
        problems = super().validate_params(params)
        if not problems:
            problems.extend(tags_problems(str(params.get("tags", ""))))
        return problems

    def compile(
        self, params: Mapping[str, object], columns: Sequence[str], mapping: Mapping[str, int]
    ) -> CompiledTags:
        if problems := self.validate_params(params):
            raise InvalidInputError(*problems)
        default = split_tags(str(params.get("tags", "")))
        index = mapping.get(TAGS)
        if index is None and not default:
            raise InvalidInputError(
                Problem(
                    "tags_missing",
                    N_(
                        "文件没有标签列，参数“%(label)s”也没有填。请二者择一。现有列：%(columns)s。"
                    ),
                    {"label": Term(_TAGS_LABEL), "columns": Names(filter(None, columns))},
                )
            )
        return CompiledTags(params.get("mode", ADD) == REMOVE, default, index)
