"""What every gateway adapter takes and gives; values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from batches.domain.outcomes import Outcome
from batches.domain.problems import Problem


class Operation(StrEnum):
    """What a call does to its targets."""

    SEND_TEXT = "send_text"
    SET_GROUP_WELCOME = "set_group_welcome"
    TAG_CUSTOMERS = "tag_customers"


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """One gateway as configured; `options` overrides the adapter's defaults."""

    kind: str
    base_url: str
    dialect: str = ""
    token: str = ""
    options: Mapping[str, object] = field(default_factory=dict)
    #: where an adapter keeps what it worked out of the above; no part of the value
    memo: object = field(default=None, init=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """One target of a call. Ids are strings, never numbers."""

    target: str
    content: str = ""
    tags: tuple[str, ...] = ()
    remove_tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CallSpec:
    """One request to come: who acts (`guid`), what on, and our own id of the call."""

    request_id: str
    guid: str
    operation: Operation
    targets: tuple[TargetSpec, ...]


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request ready to be carried. Redirects must not be followed: they would repeat it."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


class RequestBuildError(ValueError):
    """The call cannot be expressed as a request of this gateway; nothing was sent."""


class Gateway(Protocol):
    """A sans-IO adapter."""

    kind: str

    def build(self, config: GatewayConfig, call: CallSpec) -> HttpRequest:
        """The request for a call. Raises RequestBuildError; then nothing was sent."""
        ...

    def parse(
        self,
        config: GatewayConfig,
        call: CallSpec,
        status: int,
        headers: Mapping[str, str],
        body: bytes,
    ) -> list[Outcome]:
        """What an answer says, one outcome per target in the call's order. Never raises."""
        ...

    def max_targets(self, config: GatewayConfig, operation: Operation) -> int:
        """The most targets that one call of this operation may carry."""
        ...

    def fitting(
        self, config: GatewayConfig, operation: Operation, targets: Sequence[TargetSpec]
    ) -> int:
        """How many of these targets, from the first on, one call can carry; at least the first.

        A call is refused by `build` as a whole, so whoever groups targets asks here first.
        """
        ...

    def validate(self, config: GatewayConfig) -> list[Problem]:
        """What is wrong with a configuration, its options included."""
        ...

    def validate_options(self, options: Mapping[str, object]) -> list[Problem]:
        """What is wrong with the options alone."""
        ...
