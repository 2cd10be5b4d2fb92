"""What a `wecomapi` gateway row may override, with defaults; nothing on the wire is a constant."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from batches.domain.problems import Names, Problem, Term
from batches.domain.text import N_

from .base import GatewayConfig
from .classify import REFUSAL_CATEGORIES

DIALECTS = ("path", "method")
MAX_COUNT = 1000

_PATH = re.compile(r"/[\x21-\x7e]*")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")
_CODE = re.compile(r"-?[0-9]{1,18}")


def _is_path(value: object) -> bool:
    return isinstance(value, str) and _PATH.fullmatch(value) is not None


def _is_header_name(value: object) -> bool:
    return isinstance(value, str) and _HEADER_NAME.fullmatch(value) is not None


def _is_header_name_or_empty(value: object) -> bool:
    return value == "" or _is_header_name(value)


def _is_field(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 64 and value.isprintable()


def _is_field_or_empty(value: object) -> bool:
    return value == "" or _is_field(value)


def _is_scalar(value: object) -> bool:
    return isinstance(value, int | str)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_COUNT


def _is_codes(value: object) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) > 0
        and all(isinstance(code, int | str) and not isinstance(code, bool) for code in value)
    )


def is_header_value(value: object) -> bool:
    """Text that may stand in a header."""
    return isinstance(value, str) and _HEADER_VALUE.fullmatch(value) is not None


#: names of headers that carry a credential
_SECRET = re.compile(r"auth|cookie|token|key|secret|sign|pass|credential|session", re.IGNORECASE)


def _is_headers(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        _is_header_name(name) and is_header_value(text) for name, text in value.items()
    )


def _is_code_table(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(code, str) and _CODE.fullmatch(code) and name in REFUSAL_CATEGORIES
        for code, name in value.items()
    )


class _Option(NamedTuple):
    default: object
    fits: Callable[[object], bool]
    #: what a value must be, in the operator's words
    wanted: str


_PATH_WANTED = N_("以 / 开头、不含空格的路径")
_HEADER_WANTED = N_("请求头名称，只含英文字母、数字和连字符")
_FIELD_WANTED = N_("1 到 64 个字符的字段名")
_SCALAR_WANTED = N_("数字、文本或 true/false")
_FLAG_WANTED = N_("true 或 false")
_COUNT_WANTED = N_("1 到 1000 的整数")


def _path(default: str) -> _Option:
    return _Option(default, _is_path, _PATH_WANTED)


def _field(default: str) -> _Option:
    return _Option(default, _is_field, _FIELD_WANTED)


OPTIONS: Mapping[str, _Option] = {
    # path dialect: one path per operation
    "path_send_text": _path("/message/sendText"),
    "path_set_group_welcome": _path("/room/setWelcome"),
    "path_tag_customers": _path("/label/contactEditLabel"),
    "path_send_group": _path("/message/sendGroupMsg"),
    # method dialect: one path, the operation named in the body
    "method_path": _path("/wecom/finder/api"),
    "method_send_text": _path("/msg/sendText"),
    "method_set_group_welcome": _path("/room/setWelcome"),
    "method_tag_customers": _path("/label/contactEditLabel"),
    "method_send_group": _path("/msg/sendGroupMsg"),
    "field_method": _field("method"),
    "field_params": _field("params"),
    # headers
    "token_header": _Option("WECOM-TOKEN", _is_header_name, _HEADER_WANTED),
    "request_id_header": _Option("X-Request-Id", _is_header_name_or_empty, _HEADER_WANTED),
    "headers": _Option({}, _is_headers, N_("“请求头名称: 值”的对象，只含可打印的英文字符")),
    # request body
    "field_guid": _field("guid"),
    "field_to": _field("toId"),
    "field_content": _field("content"),
    "field_room": _field("roomId"),
    "field_op_type": _field("opType"),
    "field_targets": _field("paramList"),
    "field_user": _field("userId"),
    "field_labels": _field("labelIdList"),
    "field_request_id": _Option("", _is_field_or_empty, _FIELD_WANTED),
    "op_add": _Option(1, _is_scalar, _SCALAR_WANTED),
    "op_remove": _Option(2, _is_scalar, _SCALAR_WANTED),
    # one request for several targets; off, since gateways differ in shape and in what they answer
    "multi_target": _Option(False, _is_flag, _FLAG_WANTED),
    "multi_target_max": _Option(50, _is_count, _COUNT_WANTED),
    "multi_target_labels": _Option(20, _is_count, _COUNT_WANTED),
    "field_to_list": _field("toIdList"),
    "field_messages": _field("msgList"),
    "field_message_type": _field("type"),
    "field_message_data": _field("msgData"),
    "field_send_type": _field("sendType"),
    "message_type_text": _Option(0, _is_scalar, _SCALAR_WANTED),
    "send_type_contacts": _Option(0, _is_scalar, _SCALAR_WANTED),
    "send_type_groups": _Option(1, _is_scalar, _SCALAR_WANTED),
    # answer
    "success_codes": _Option((0,), _is_codes, N_("非空的成功码列表，例如 [0] 或 [0, 200]")),
    "reply_code": _field("code"),
    "reply_data": _field("data"),
    "reply_sent": _field("isSendSuccess"),
    "sent_value": _Option(1, _is_scalar, _SCALAR_WANTED),
    "reply_unique_id": _field("msgUniqueIdentifier"),
    "reply_server_id": _field("msgServerId"),
    # answer for several targets: a list in `data`, or `data` itself where its name is empty
    "reply_results": _Option("results", _is_field_or_empty, _FIELD_WANTED),
    "reply_to": _field("toId"),
    "reply_user": _field("userId"),
    #: whether a success without a list means success for every target
    "multi_target_all_or_nothing": _Option(False, _is_flag, _FLAG_WANTED),
    "codes": _Option(
        {}, _is_code_table, N_('“错误码: 分类”的对象，分类须是拒绝类，例如 {"30001": "credential"}')
    ),
}


def option(options: Mapping[str, object], name: str) -> object:
    """An option's value; its default where it is not set or does not fit."""
    known = OPTIONS[name]
    value = options.get(name, known.default)
    return value if value is known.default or known.fits(value) else known.default


def validate_options(options: Mapping[str, object]) -> list[Problem]:
    """Every option that is unknown or does not fit."""
    problems: list[Problem] = []
    for name, value in options.items():
        known = OPTIONS.get(name)
        if known is None:
            problems.append(
                Problem(
                    "gateway_option_unknown",
                    N_("不认识的网关选项“%(name)s”。可用的选项：%(known)s。"),
                    {"name": name, "known": Names(OPTIONS)},
                )
            )
        elif not known.fits(value):
            problems.append(
                Problem(
                    "gateway_option_invalid",
                    N_("网关选项“%(name)s”的值不合要求，应为：%(wanted)s。"),
                    {"name": name, "wanted": Term(known.wanted)},
                )
            )
        elif isinstance(value, Mapping) and name == "headers":
            problems += [
                Problem(
                    "gateway_header_secret",
                    N_(
                        "请求头“%(header)s”像是凭证，而选项是明文保存的。"
                        "请把它的值填进“令牌”（加密保存，填后不再显示），"
                        "并用选项 token_header 写明请求头的名称。"
                    ),
                    {"header": header},
                )
                for header in value
                if _SECRET.search(header)
            ]
    return problems


def validate_config(config: GatewayConfig) -> list[Problem]:
    """What is wrong with a gateway as configured, its options included."""
    problems = validate_options(config.options)
    if not _is_base_url(config.base_url):
        problems.append(
            Problem(
                "gateway_url_invalid",
                N_(
                    "网关地址“%(url)s”不能用。"
                    "应以 http:// 或 https:// 开头，不带参数，也不带用户名和密码。"
                ),
                {"url": config.base_url},
            )
        )
    if config.dialect not in DIALECTS:
        problems.append(
            Problem(
                "gateway_dialect_unknown",
                N_("不认识的网关方言“%(dialect)s”。可用：%(known)s。"),
                {"dialect": config.dialect, "known": Names(DIALECTS)},
            )
        )
    if not is_header_value(config.token):
        problems.append(
            Problem(
                "gateway_token_invalid",
                N_("网关令牌只能含可打印的英文字符，请检查是否多粘贴了换行或空白。"),
            )
        )
    return problems


def _is_base_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        if parts.port == 0:  # raises for a port that is no number
            return False
    except ValueError:
        return False
    return (
        parts.scheme in ("http", "https")
        and bool(parts.hostname)
        and "@" not in parts.netloc  # secrets belong into the token, which is kept encrypted
        and not parts.query
        and not parts.fragment
        and url.isascii()
        and " " not in url
    )
