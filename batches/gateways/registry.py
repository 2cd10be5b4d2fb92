"""The gateway adapters by kind."""

from __future__ import annotations

from collections.abc import Mapping

from batches.domain.errors import InvalidInputError
from batches.domain.problems import Names, Problem
from batches.domain.text import N_

from .base import Gateway
from .wecomapi import WecomApiGateway

_GATEWAYS: Mapping[str, Gateway] = {WecomApiGateway.kind: WecomApiGateway()}


def gateway_kinds() -> tuple[str, ...]:
    """The kinds there are, for choices."""
    return tuple(_GATEWAYS)


def get_gateway(kind: str) -> Gateway:
    """The adapter of a kind. Raises InvalidInputError for an unknown one."""
    try:
        return _GATEWAYS[kind]
    except KeyError:
        raise InvalidInputError(
            Problem(
                "gateway_kind_unknown",
                N_("不认识的网关类型“%(kind)s”。可用：%(known)s。"),
                {"kind": kind, "known": Names(_GATEWAYS)},
            )
        ) from None
