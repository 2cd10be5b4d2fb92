"""Check constraints derived from the state tables, so that they cannot drift."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy


def one_of(field: str, states: Iterable[StrEnum], name: str) -> models.CheckConstraint:
    """`field` holds one of `states`; sorted so that migrations are stable."""
    values = sorted(state.value for state in states)
    return models.CheckConstraint(condition=Q(**{f"{field}__in": values}), name=name)


def choices(labels: Iterable[tuple[StrEnum, str]]) -> list[tuple[str, Any]]:
    """Django choices from a label table of `domain`."""
    return [(state.value, gettext_lazy(label)) for state, label in labels]


class Rising(models.Func):
    """Whether an integer array holds positive, strictly rising numbers.

    The SQL function is made by a migration: a check constraint may not hold a subquery.
    """

    function = "batches_rising"
    output_field = models.BooleanField()
    conditional = True
