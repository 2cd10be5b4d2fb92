"""Error codes to failure categories; the table is `errcodes.csv` beside this file."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from importlib.resources import files

from batches.domain.categories import Category

#: The account's login state as these gateways report it: somebody has to log in again.
_LOGIN_STATES = frozenset({11002, 11013, 11017, 11022, 11023, 11024, 11025})

#: What a definite refusal can be; the other categories say "never sent" or "in doubt".
REFUSAL_CATEGORIES = frozenset(
    {
        Category.RETRY_SYSTEM,
        Category.RATE_LIMITED,
        Category.CREDENTIAL,
        Category.PERMISSION,
        Category.TARGET_INVALID,
        Category.TAG_INVALID,
        Category.QUOTA_LIMIT,
        Category.CONTENT_INVALID,
        Category.MESSAGE_STATE,
        Category.PARAM,
        Category.OTHER,
    }
)


def _load() -> tuple[dict[int, Category], dict[int, str]]:
    categories: dict[int, Category] = {}
    meanings: dict[int, str] = {}
    known = {category.value: category for category in Category}
    table = (files("batches.gateways") / "errcodes.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(table.splitlines()):
        code = int(row["code"])
        # Codes of the group robot have a category of their own that no item can meet.
        categories[code] = known.get(row["category"], Category.OTHER)
        meanings[code] = row["meaning_zh"]
    return categories, meanings


_CATEGORIES, _MEANINGS = _load()
_CATEGORIES.update(dict.fromkeys(_LOGIN_STATES, Category.CREDENTIAL))


def documented(code: int, overrides: Mapping[str, str] | None = None) -> Category | None:
    """The category of a code that the gateway's own table or the official one names, or None."""
    own = (overrides or {}).get(str(code), "")
    return Category(own) if own in REFUSAL_CATEGORIES else _CATEGORIES.get(code)


def classify(code: int, overrides: Mapping[str, str] | None = None) -> Category:
    """The category of a refusal; a code in no table is a refusal all the same."""
    return documented(code, overrides) or Category.OTHER


def meaning(code: int) -> str:
    """What the official table says about a code, in Chinese; empty where it says nothing."""
    return _MEANINGS.get(code, "")
