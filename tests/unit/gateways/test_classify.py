"""The table of error codes."""

from __future__ import annotations

from batches.domain.categories import Category
from batches.gateways.classify import REFUSAL_CATEGORIES, classify, documented, meaning


def test_classify_unknown_code_is_other():
    assert documented(123456) is None
    assert classify(123456) is Category.OTHER


def test_classify_override_wins_and_a_senseless_one_is_ignored():
    assert classify(45009, {"45009": "quota_limit"}) is Category.QUOTA_LIMIT
    assert classify(45009, {"45009": "timeout"}) is Category.RATE_LIMITED
    assert classify(45009, {"45009": "nonsense"}) is Category.RATE_LIMITED


def test_classify_every_documented_code_is_a_refusal():
    codes = [code for code in range(-10, 700_000) if documented(code)]
    assert len(codes) > 250
    assert {documented(code) for code in codes} <= REFUSAL_CATEGORIES


def test_meaning_comes_from_the_table():
    assert "系统繁忙" in meaning(-1)
    assert meaning(123456) == ""
