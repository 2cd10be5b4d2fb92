"""docs/states.md, made from the tables of `domain` and the comments beside them."""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TypeVar

from batches.domain import decisions, states
from batches.domain.categories import CATEGORIES, IN_DOUBT, Category
from batches.domain.outcomes import NotSent, Refused
from batches.domain.verbs import VERBS

S = TypeVar("S", bound=StrEnum)

_HEAD = """\
# States

Generated from `batches/domain/` by `manage.py docs_states`; change the tables there, not this page.
The Chinese word is the one on the screens.
"""
_VALUE = re.compile(r'^    ([A-Z_]+) = "\w+"  # (.+)$', re.MULTILINE)
_ENTRY = re.compile(r"^    [A-Z]\.([A-Z_]+):.*?(?:  # (.+))?$")


def states_page() -> str:
    """The whole page. Raises `KeyError` for a state without a comment beside it."""
    parts = [
        _HEAD,
        _machine("Job", states.JobStatus, states.JOB_ARROWS, "JOB_ARROWS", states.JOB_LABELS),
        _machine(
            "Shard", states.ShardStatus, states.SHARD_ARROWS, "SHARD_ARROWS", states.SHARD_LABELS
        ),
        _machine("Item", states.ItemState, states.ITEM_ARROWS, "ITEM_ARROWS", states.ITEM_LABELS),
        _outcomes(),
        _words("Reasons of a pause", "Kept in `pause_reason` (job) and `reason` (shard).",
               states.PAUSE_LABELS),
        _words("Reasons of a hold",
               "A hold is not a state: it is a time in `hold_until` and ends by itself.",
               states.HOLD_LABELS),
        _verbs(),
        _categories(),
    ]  # fmt: skip
    return "\n".join(parts)


def _machine(
    title: str,
    kind: type[S],
    arrows: Mapping[S, frozenset[S]],
    table: str,
    labels: Mapping[S, str],
) -> str:
    meaning = dict(_VALUE.findall(inspect.getsource(kind)))
    notes = _arrow_notes(table)
    rows = [
        (
            f"`{state}`",
            labels[state],
            meaning[state.name],
            ", ".join(f"`{target}`" for target in kind if target in arrows[state]) or "– (final)",
            notes.get(state.name, ""),
        )
        for state in kind
    ]
    first = next(iter(kind))
    lines = ["stateDiagram-v2", f"    [*] --> {first}"]
    lines += [f"    {state} --> {target}" for state in kind for target in kind
              if target in arrows[state]]  # fmt: skip
    lines += [f"    {state} --> [*]" for state in kind if not arrows[state]]
    diagram = "\n".join(lines)
    head = ("state", "word", "meaning", "may become", "why")
    return f"## {title}\n\n```mermaid\n{diagram}\n```\n\n{_table(head, rows)}"


def _arrow_notes(table: str) -> dict[str, str]:
    """State → the comment above or beside its entry in an arrow table of `domain.states`."""
    source = inspect.getsource(states)
    body = source[source.index(f"\n{table}: ") :].split("\n}\n", 1)[0]
    notes: dict[str, str] = {}
    above: list[str] = []
    for line in body.splitlines():
        if line.startswith("    # "):
            above.append(line[6:])
        elif entry := _ENTRY.match(line):
            notes[entry[1]] = " ".join([*above, entry[2] or ""]).strip()
            above = []
    return notes


def _outcomes() -> str:
    doc = inspect.getdoc(decisions) or ""
    table = "\n".join(line for line in doc.splitlines() if line.startswith("|"))
    return f"## What an outcome does to its item\n\n{table}\n"


def _words(title: str, lead: str, labels: Mapping[S, str]) -> str:
    rows = [(f"`{value}`", label) for value, label in labels.items()]
    return f"## {title}\n\n{lead}\n\n{_table(('reason', 'word'), rows)}"


def _verbs() -> str:
    rows = [
        (
            f"`{verb}`",
            info.label,
            f"`{info.permission}`",
            "any"
            if info.sources == frozenset(states.JobStatus)
            else ", ".join(f"`{state}`" for state in states.JobStatus if state in info.sources),
            "required" if info.needs_reason else "",
        )
        for verb, info in VERBS.items()
    ]
    head = ("verb", "word", "permission", "while the job is", "reason")
    return f"## What a person may do\n\n{_table(head, rows)}"


def _categories() -> str:
    rows = [
        (
            f"`{category}`",
            info.label,
            info.advice,
            _again(category, auto=info.auto_retry),
            "" if category in IN_DOUBT else "yes" if info.operator_retry else "only if named",
        )
        for category, info in CATEGORIES.items()
    ]
    head = ("category", "word", "advice", "tried again by itself", "taken by a retry")
    return f"## Failure categories\n\n{_table(head, rows)}"


def _again(category: Category, *, auto: bool) -> str:
    if category in IN_DOUBT:
        return "in doubt: never again by itself"
    if not auto:
        return "no"
    outcome = NotSent(category) if category is Category.UNREACHABLE else Refused(category)
    tried = decisions.decide(outcome, attempt=1, max_attempts=2, rng=random.Random(0))
    return "yes, up to the job's attempts" if tried.counted else "yes, as often as it takes"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
