"""States, reasons and categories in words and colours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from batches.actions.registry import get_action
from batches.domain.actors import actor_words
from batches.domain.alerts import sentence
from batches.domain.categories import category_info
from batches.domain.errors import InvalidInputError
from batches.domain.problems import Problem
from batches.domain.states import (
    HOLD_LABELS,
    ITEM_LABELS,
    JOB_LABELS,
    PAUSE_LABELS,
    SHARD_LABELS,
    ItemState,
    JobStatus,
    ShardStatus,
)
from batches.domain.text import N_
from batches.models import Alert

from .library import register

J, S, I = JobStatus, ShardStatus, ItemState  # noqa: E741 - table shorthand

_JOB_TONES: Mapping[JobStatus, str] = {
    J.PREPARING: "info",
    J.AWAITING: "doubt",
    J.RUNNING: "info",
    J.PAUSING: "warn",
    J.PAUSED: "warn",
    J.VERIFYING: "doubt",
    J.COMPLETED: "ok",
    J.CANCELLING: "muted",
    J.CANCELLED: "muted",
    J.TERMINATING: "bad",
    J.TERMINATED: "bad",
    J.REJECTED: "bad",
}
_SHARD_TONES: Mapping[ShardStatus, str] = {
    S.PENDING: "muted",
    S.RUNNING: "info",
    S.PAUSED: "warn",
    S.COMPLETED: "ok",
    S.FAILED: "bad",
    S.CANCELLED: "muted",
}
_ITEM_TONES: Mapping[ItemState, str] = {
    I.PENDING: "muted",
    I.SUBMITTED: "info",
    I.CONFIRMED: "ok",
    I.FAILED: "bad",
    I.ABANDONED: "muted",
}

_REASONS: Mapping[str, str] = {
    **{reason.value: text for reason, text in HOLD_LABELS.items()},
    **{reason.value: text for reason, text in PAUSE_LABELS.items()},
}


def _badge(label: str, tone: str) -> SafeString:
    return format_html('<span class="badge tone-{}">{}</span>', tone, _(label))


@register.filter
def job_badge(status: str) -> SafeString:
    known = JobStatus(status)
    return _badge(JOB_LABELS[known], _JOB_TONES[known])


@register.filter
def shard_badge(status: str) -> SafeString:
    known = ShardStatus(status)
    return _badge(SHARD_LABELS[known], _SHARD_TONES[known])


#: what a shard that could run is called while its job does not
_IDLE: Mapping[str, str] = {
    J.AWAITING: N_("待启动"),
    J.PAUSING: N_("随作业暂停"),
    J.PAUSED: N_("随作业暂停"),
    J.VERIFYING: N_("等待核实"),
    J.TERMINATING: N_("随作业终止"),
    J.TERMINATED: N_("随作业终止"),
}


@register.filter
def shard_badge_in(status: str, job_status: str) -> SafeString:
    """A runnable shard's state as its job's allows it."""
    if job_status in _IDLE:
        return _badge(_IDLE[job_status], "muted")
    return shard_badge(status)


@register.filter
def item_badge(state: str) -> SafeString:
    known = ItemState(state)
    return _badge(ITEM_LABELS[known], _ITEM_TONES[known])


@register.filter
def reason_label(reason: str) -> str:
    """A pause or hold reason in words; an unknown one as it is."""
    return _(_REASONS.get(reason, reason)) if reason else ""


@register.filter
def category_label(category: str | None) -> str:
    return _(category_info(category).label) if category else ""


@register.filter
def category_advice(category: str | None) -> str:
    return _(category_info(category).advice) if category else ""


@register.filter
def t(text: object) -> str:
    """The catalogue's text for one that was marked elsewhere."""
    return _(str(text)) if text else ""


@register.simple_tag
def problem_text(problem: Problem) -> str:
    """A problem's sentence in the reader's language."""
    return problem.translated(_)


@register.simple_tag
def alert_text(alert: Alert) -> str:
    """An alert's sentence with its values."""
    return sentence(alert.text, alert.params, _)


@register.filter
def strip_tone(level: str) -> str:
    """The colour of a reason's level."""
    return {"error": "bad", "warn": "warn"}.get(level, "info")


@register.filter
def action_label(name: str) -> str:
    """An action in words; one that no longer exists by its name."""
    try:
        return _(get_action(name).label)
    except InvalidInputError:
        return name


@register.filter
def actor(actor_name: str) -> str:
    """Who did it: a person as they were called, a command line, or the system itself."""
    return actor_words(actor_name, _)


@register.filter
def person(user: Any) -> str:
    return str(user.get_full_name() or user.get_username())


_OUTCOMES: Mapping[str, str] = {
    "accepted": N_("网关已接受"),
    "refused": N_("网关拒绝"),
    "not_sent": N_("没有发出"),
    "unknown": N_("结果不明"),
    "mixed": N_("部分接受"),
}


@register.filter
def outcome_label(outcome: str) -> str:
    return _(_OUTCOMES.get(outcome, outcome))
