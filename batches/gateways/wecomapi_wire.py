"""A `wecomapi` configuration, worked out once: what its requests and answers look like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .base import GatewayConfig, Operation
from .wecomapi_options import DIALECTS, OPTIONS, is_header_value, option

#: the request for several targets of a text is another one than for one
SEND_GROUP = "send_group"
Scalar = int | str


@dataclass(frozen=True, slots=True)
class Settings:
    """The value of every option: as set where it fits, else its default."""

    path_send_text: str
    path_set_group_welcome: str
    path_tag_customers: str
    path_send_group: str
    method_path: str
    method_send_text: str
    method_set_group_welcome: str
    method_tag_customers: str
    method_send_group: str
    field_method: str
    field_params: str
    token_header: str
    request_id_header: str
    headers: Mapping[str, str]
    field_guid: str
    field_to: str
    field_content: str
    field_room: str
    field_op_type: str
    field_targets: str
    field_user: str
    field_labels: str
    field_request_id: str
    op_add: Scalar
    op_remove: Scalar
    multi_target: bool
    multi_target_max: int
    multi_target_labels: int
    field_to_list: str
    field_messages: str
    field_message_type: str
    field_message_data: str
    field_send_type: str
    message_type_text: Scalar
    send_type_contacts: Scalar
    send_type_groups: Scalar
    success_codes: tuple[Scalar, ...] | list[Scalar]
    reply_code: str
    reply_data: str
    reply_sent: str
    sent_value: Scalar
    reply_unique_id: str
    reply_server_id: str
    reply_results: str
    reply_to: str
    reply_user: str
    multi_target_all_or_nothing: bool
    codes: Mapping[str, str]


def settings_of(options: Mapping[str, object]) -> Settings:
    """The options, each checked once."""
    values: dict[str, Any] = {name: option(options, name) for name in OPTIONS}
    return Settings(**values)


@dataclass(frozen=True, slots=True)
class Wire:
    """What does not change from one call of a gateway to the next."""

    settings: Settings
    #: why no request can be made at all; empty where one can
    fault: str
    #: the operation's name stands in the body, not in the address
    by_method: bool
    #: by operation: the address, and the method's name where the body holds one
    endpoints: Mapping[str, tuple[str, str]]
    #: what every request brings, the token included
    headers: Mapping[str, str]
    #: success codes with their types: `0.0`, `false` and `"0"` are not 0
    success: frozenset[tuple[type, object]]
    #: refusals may be text, since success is
    text_codes: bool


def wire_of(config: GatewayConfig) -> Wire:
    """A configuration as worked out; kept with it, since thousands of calls a second ask."""
    wire = config.memo
    if not isinstance(wire, Wire):
        wire = _work_out(config)
        object.__setattr__(config, "memo", wire)
    return wire


def _work_out(config: GatewayConfig) -> Wire:
    settings = settings_of(config.options)
    by_method = config.dialect == "method"
    base = config.base_url.rstrip("/")
    endpoints: dict[str, tuple[str, str]] = {}
    for name in (*Operation, SEND_GROUP):
        path = settings.method_path if by_method else getattr(settings, f"path_{name}")
        endpoints[name] = (base + path, getattr(settings, f"method_{name}") if by_method else "")
    headers = {
        "Content-Type": "application/json; charset=utf-8",
        "Accept": "application/json",
        **settings.headers,
    }
    fault = "" if config.dialect in DIALECTS else f"unknown dialect {config.dialect!r}"
    if config.token:
        if not is_header_value(config.token):
            fault = fault or "the token cannot stand in a header"
        headers[settings.token_header] = config.token
    return Wire(
        settings=settings,
        fault=fault,
        by_method=by_method,
        endpoints=endpoints,
        headers=headers,
        success=frozenset((type(code), code) for code in settings.success_codes),
        text_codes=any(isinstance(code, str) for code in settings.success_codes),
    )
