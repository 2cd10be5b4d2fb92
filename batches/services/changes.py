"""What was before and what is after, as the audit keeps it; secrets are named, never told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Facts:
    """A row as the audit sees it: what may be told, and what may only be called changed."""

    open: Mapping[str, Any]
    sealed: Mapping[str, Any] = field(default_factory=dict, repr=False)


def difference(before: Facts | None, after: Facts | None) -> dict[str, Any]:
    """The `data` of an event, {} where nothing differs; None is a row that is not (yet) there.

    `before` and `after` hold what differs; `set`, `replaced` and `cleared` the names of secrets
    (None is none) to which that happened, of a row that goes away none. Of a value that is itself
    a mapping only its differing entries are kept.
    """
    was, now = (side.open if side else {} for side in (before, after))
    told: dict[str, dict[str, Any]] = {"before": {}, "after": {}}
    for name in {**was, **now}:
        old, new = was.get(name), now.get(name)
        if old == new:
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
            old = {key: old[key] for key in keys if key in old}
            new = {key: new[key] for key in keys if key in new}
        if name in was:
            told["before"][name] = old
        if name in now:
            told["after"][name] = new
    data: dict[str, Any] = {side: values for side, values in told.items() if values}
    if after is not None:
        data |= _secrets(before.sealed if before else {}, after.sealed)
    return data


def _secrets(was: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, list[str]]:
    """What became of each secret that differs."""
    told: dict[str, list[str]] = {}
    for name in sorted({**was, **now}):
        old, new = was.get(name), now.get(name)
        if old != new:
            key = "set" if old is None else "cleared" if new is None else "replaced"
            told.setdefault(key, []).append(name)
    return told
