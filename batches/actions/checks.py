"""Checks of single cells: ids that a spreadsheet destroyed, ids of the wrong family, tags."""

from __future__ import annotations

import re

from batches.domain.problems import Problem
from batches.domain.text import N_
from batches.gateways.ids import GROUP_ID

MAX_ID_LENGTH = 64
_SHOWN = 40

_SCIENTIFIC = re.compile(r"[+-]?[0-9]+([.,][0-9]+)?[eE]\+[0-9]+")
_DECIMAL = re.compile(r"[0-9]{5,}[.,]0+")
_SPREADSHEET_ERROR = re.compile(r"#(N/A|REF!|VALUE!|NAME\?|DIV/0!|NULL!|NUM!|SPILL!|#+)")
_PLAIN_ID = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_ID_LENGTH}}}")
_ID = re.compile(r"[A-Za-z0-9_.@:-]+")
_BLANK_OR_CONTROL = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u200b-\u200f\u2060\ufeff]")

#: The two families of ids are not interchangeable.
_OFFICIAL_ID = re.compile(r"w[mor][A-Za-z0-9_-]{8,}")
_GATEWAY_CUSTOMER_ID = re.compile(r"788[0-9]{13}")


def damaged_problem(value: str) -> Problem | None:
    """A value that a spreadsheet replaced: scientific notation, or an error of a formula."""
    if "+" not in value and value[:1] != "#":  # nearly every value of a million rows
        return None
    if _SCIENTIFIC.fullmatch(value):
        return _problem(
            "value_scientific",
            N_(
                "“%(value)s”已被 Excel 改成科学计数法，末尾几位数字已丢失，无法还原。"
                "请从原始数据把该列设为文本格式后重新导出。"
            ),
            value,
        )
    if _SPREADSHEET_ERROR.fullmatch(value):
        return _problem(
            "value_spreadsheet_error",
            N_("“%(value)s”是表格公式的错误值，不是数据。请修正公式后重新导出。"),
            value,
        )
    return None


def id_problem(value: str) -> Problem | None:
    """Why `value` cannot be an id of any family."""
    if _PLAIN_ID.fullmatch(value):  # nearly every value of a million rows
        return None
    if not value.strip():
        return Problem("id_empty", N_("ID 为空。请补上，或删除这一行。"))
    if damaged := damaged_problem(value):
        return damaged
    if _BLANK_OR_CONTROL.search(value):
        return _problem(
            "id_blank_inside",
            N_("“%(value)s”含有空格或不可见字符。请删除这些字符，每格只写一个 ID。"),
            value,
        )
    if len(value) > MAX_ID_LENGTH:
        return Problem(
            "id_too_long",
            N_("“%(value)s”有 %(length)s 个字符，ID 最长 %(limit)s 个字符。请核对该列。"),
            {"value": _shown(value), "length": len(value), "limit": MAX_ID_LENGTH},
        )
    if _DECIMAL.fullmatch(value):
        return _problem(
            "id_decimal",
            N_("“%(value)s”带有小数，不是 ID。请把该列设为文本格式后重新导出。"),
            value,
        )
    if not _ID.fullmatch(value):
        return _problem(
            "id_characters",
            N_("“%(value)s”不是 ID：只能含英文字母、数字和 _ - . @ :。请核对该列是否选对。"),
            value,
        )
    return None


def customer_id_problem(value: str) -> Problem | None:
    """Why `value` cannot be a customer's id."""
    if problem := id_problem(value):
        return problem
    if GROUP_ID.fullmatch(value) or (value.startswith("wr") and _official(value)):
        return _problem(
            "id_of_group", N_("“%(value)s”是群 ID，这里需要客户 ID。请核对该列是否选对。"), value
        )
    return None


def group_id_problem(value: str) -> Problem | None:
    """Why `value` cannot be a group's id."""
    if problem := id_problem(value):
        return problem
    if _GATEWAY_CUSTOMER_ID.fullmatch(value) or (value[:2] in ("wm", "wo") and _official(value)):
        return _problem(
            "id_of_customer", N_("“%(value)s”是客户 ID，这里需要群 ID。请核对该列是否选对。"), value
        )
    return None


def foreign_id_problem(value: str, gateway_kind: str) -> Problem | None:
    """An id of the official API at a gateway that has ids of its own."""
    if gateway_kind == "wecomapi" and _official(value):
        return _problem(
            "id_foreign",
            N_("“%(value)s”是官方接口的 ID，该账号的网关不认识它。请改用从该网关导出的数字 ID。"),
            value,
        )
    return None


def any_value(_: str) -> Problem | None:
    """A column of free text."""
    return None


def _official(value: str) -> bool:
    return _OFFICIAL_ID.fullmatch(value) is not None


def _shown(value: str) -> str:
    return value if len(value) <= _SHOWN else value[:_SHOWN] + "…"


def _problem(code: str, text: str, value: str) -> Problem:
    return Problem(code, text, {"value": _shown(value)})
