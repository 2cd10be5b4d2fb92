"""The shape of an action; actions take values and give values, and touch no model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal, Protocol

from batches.domain.columns import folded_header
from batches.domain.problems import Names, Problem, Term
from batches.domain.text import N_
from batches.gateways.base import Operation, TargetSpec

from .checks import foreign_id_problem

#: No gateway was seen to take more targets in one request.
MAX_TARGETS_PER_CALL = 50
#: What may stand in a text: everything but controls other than tab and line ends.
_CONTROLS = frozenset(map(chr, range(32))) - frozenset("\t\n\r") | {"\x7f"}


@lru_cache(maxsize=64)
def _folded(aliases: tuple[str, ...]) -> frozenset[str]:
    return frozenset(map(folded_header, aliases))


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """A column that an action reads; `key` is canonical, `label` a catalogue text."""

    key: str
    label: str
    aliases: tuple[str, ...]
    required: bool
    #: what is wrong with one cleaned cell, if anything
    check: Callable[[str], Problem | None]

    def matches(self, header: str) -> bool:
        """Whether a header means this column; case, widths, spaces and `_` do not count."""
        return folded_header(header) in _folded(self.aliases)


@dataclass(frozen=True, slots=True)
class ParamSpec:
    """A parameter that the operator fills in; texts are catalogue texts."""

    name: str
    label: str
    kind: Literal["text", "textarea", "choice"]
    required: bool
    help: str = ""
    max_bytes: int = 0
    #: its text may hold `{column}` placeholders
    is_template: bool = False
    choices: tuple[tuple[str, str], ...] = ()
    default: str = ""

    def problem(self, value: object) -> Problem | None:
        """What is wrong with a value, by the rules that need no columns."""
        values: dict[str, object] = {"label": Term(self.label)}
        if not isinstance(value, str):
            return Problem("param_not_text", N_("参数“%(label)s”必须是文本。"), values)
        if self.choices and value not in (known for known, _ in self.choices):
            values["known"] = Names(known for known, _ in self.choices)
            return Problem("param_choice_unknown", N_("参数“%(label)s”只能是：%(known)s。"), values)
        if self.required and not value.strip():
            return Problem("param_empty", N_("请填写参数“%(label)s”。"), values)
        if not _CONTROLS.isdisjoint(value):
            return Problem(
                "param_control_character",
                N_("参数“%(label)s”含有不可见的控制字符，请删除后重新输入。"),
                values,
            )
        size = len(value.encode("utf-8", "replace"))
        if self.max_bytes and size > self.max_bytes:
            return Problem(
                "param_too_long",
                N_("参数“%(label)s”有 %(size)s 字节，超过上限 %(limit)s 字节，请缩短。"),
                values | {"size": size, "limit": self.max_bytes},
            )
        return None


class Compiled(Protocol):
    """An action bound to one job's parameters and one file's columns.

    `fields` are a row's cells in the order of the columns given to `compile`.
    """

    @property
    def operation(self) -> Operation: ...

    @property
    def shared_content(self) -> bool:
        """Whether rows of one account may share a call, as far as their content goes.

        Which of them do is for the gateway to say: see `Gateway.fitting`.
        """
        ...

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """Not wrong, but probably not meant; worth showing before the job is confirmed."""
        ...

    def check_row(self, target: str, fields: Sequence[str]) -> list[Problem]:
        """Why this row cannot be sent; empty where it can."""
        ...

    def to_target(self, target: str, fields: Sequence[str]) -> TargetSpec:
        """The target with its own content. Raises nothing for a row that `check_row` passed."""
        ...


class Action(ABC):
    """One kind of job."""

    name: ClassVar[str]
    operation: ClassVar[Operation]
    #: catalogue texts
    label: ClassVar[str]
    description: ClassVar[str]
    #: what may prove an effect, the default first; whether a gateway can is for others to say
    confirm_policies: ClassVar[tuple[str, ...]] = ("response", "lookup", "manual")

    @property
    @abstractmethod
    def columns(self) -> tuple[ColumnSpec, ...]: ...

    @property
    @abstractmethod
    def params(self) -> tuple[ParamSpec, ...]: ...

    @abstractmethod
    def compile(
        self, params: Mapping[str, object], columns: Sequence[str], mapping: Mapping[str, int]
    ) -> Compiled:
        """Bind to a file: its headers, and the column index of each canonical key.

        Raises InvalidInputError listing every fault.
        """

    def validate_params(self, params: Mapping[str, object]) -> list[Problem]:
        """Every fault of the parameters that shows without a file."""
        known = {spec.name: spec for spec in self.params}
        problems = [
            Problem(
                "param_unknown",
                N_("动作“%(action)s”没有参数“%(name)s”。可用的参数：%(known)s。"),
                {"action": Term(self.label), "name": name, "known": Names(known)},
            )
            for name in params
            if name not in known
        ]
        values = ((spec, params.get(spec.name, spec.default)) for spec in self.params)
        problems.extend(found for spec, value in values if (found := spec.problem(value)))
        return problems

    def check_target(self, target: str, *, gateway_kind: str) -> Problem | None:
        """Whether an id, right in itself, belongs to another kind of gateway."""
        return foreign_id_problem(target, gateway_kind)

    def max_targets_per_call(self, gateway_max: int) -> int:
        """How many targets of a job one call may carry, the gateway allowing `gateway_max`."""
        return max(1, min(gateway_max, MAX_TARGETS_PER_CALL))
