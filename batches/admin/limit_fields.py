"""Typed limits out of a form: numbers, times of day, moments; faults in the operator's words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, time

from batches.domain.errors import InvalidInputError
from batches.domain.problems import Problem, Term
from batches.domain.text import N_

from .shell import number

_SEPARATORS = re.compile(r"[,，、;；\s]+")
Form = Mapping[str, str]


def whole(form: Form, name: str, label: str) -> int | None:
    """A whole number (maybe with thousands separators), None for an empty field."""
    text = form.get(name, "").strip().replace(",", "")
    if not text:
        return None
    sign = -1 if text.startswith("-") else 1
    value = number(text.removeprefix("-"))
    if value is None or value > 10**10:
        raise _fault("not_number", N_("“%(label)s”请填整数，现在是“%(value)s”。"), label, text)
    return sign * value


def positive(form: Form, name: str, label: str) -> int | None:
    """As `whole`; empty means no limit."""
    text = form.get(name, "")
    value = whole(form, name, label)
    if value is not None and value < 1:
        raise _fault(
            "not_positive",
            N_("“%(label)s”请填正整数，或留空表示不限；现在是“%(value)s”。"),
            label,
            text,
        )
    return value


def share(form: Form, name: str, label: str) -> float | None:
    """A percentage as a share of one, None for an empty field."""
    text = form.get(name, "").strip().removesuffix("%").strip()
    if not text:
        return None
    if not re.fullmatch(r"\d{1,3}(\.\d{1,4})?", text):
        raise _fault(
            "not_percentage", N_("“%(label)s”请填百分数，例如 50，现在是“%(value)s”。"), label, text
        )
    return float(text) / 100


def clock(form: Form, name: str, label: str) -> time | None:
    """A time of day, None for an empty field."""
    text = form.get(name, "").strip()
    try:
        return time.fromisoformat(text) if text else None
    except ValueError:
        raise _fault(
            "not_clock", N_("“%(label)s”请填时刻，例如 09:00，现在是“%(value)s”。"), label, text
        ) from None


def moment(form: Form, name: str, label: str) -> datetime | None:
    """A local date and time as browsers send it, None for an empty field."""
    text = form.get(name, "").strip()
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        raise _fault(
            "not_moment",
            N_("“%(label)s”请填日期和时间，例如 2026-12-01 09:30，现在是“%(value)s”。"),
            label,
            text,
        ) from None


def stages(form: Form) -> list[int]:
    """Checkpoints, separated by whatever people type between numbers."""
    words = [word for word in _SEPARATORS.split(form.get("stages", "").strip()) if word]
    found = [number(word) for word in words]
    if None in found:
        raise InvalidInputError(
            Problem("stages_not_numbers", N_("放量检查点请填从小到大的条数，例如 50,500。"))
        )
    return [stage for stage in found if stage is not None]


def _fault(code: str, text: str, label: str, value: str) -> InvalidInputError:
    return InvalidInputError(Problem(code, text, {"label": Term(label), "value": value[:40]}))
