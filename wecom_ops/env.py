"""Typed reads of environment variables, each with its default."""

from __future__ import annotations

import os
from typing import Final

from django.core.exceptions import ImproperlyConfigured

_ON: Final = frozenset({"1", "true", "yes", "on"})
_OFF: Final = frozenset({"0", "false", "no", "off", ""})


def text(name: str, default: str = "") -> str:
    """The variable without surrounding blanks; an empty one counts as unset."""
    return os.environ.get(name, "").strip() or default


def flag(name: str, *, default: bool) -> bool:
    raw = os.environ.get(name)
    if raw is None:
        return default
    word = raw.strip().lower()
    if word in _ON:
        return True
    if word in _OFF:
        return False
    raise ImproperlyConfigured(f"{name} must be on or off, not {raw!r}.")


def number(name: str, default: int, *, least: int = 1, most: int | None = None) -> int:
    raw = text(name)
    if not raw:
        return default
    try:
        value = int(raw)
    except ValueError:
        raise ImproperlyConfigured(f"{name} must be a whole number, not {raw!r}.") from None
    if value < least:
        raise ImproperlyConfigured(f"{name} must be at least {least}, not {value}.")
    if most is not None and value > most:
        raise ImproperlyConfigured(f"{name} must be at most {most}, not {value}.")
    return value


def words(name: str) -> list[str]:
    """A comma-separated list; blanks around and between entries are dropped."""
    return [word for raw in os.environ.get(name, "").split(",") if (word := raw.strip())]
