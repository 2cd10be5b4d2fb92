"""Checks of single cells."""

from __future__ import annotations

import pytest

from batches.actions.checks import (
    customer_id_problem,
    damaged_problem,
    foreign_id_problem,
    group_id_problem,
    id_problem,
)

CUSTOMER, GROUP = "7881300000000000", "10888000000000001"
OFFICIAL_CUSTOMER, OFFICIAL_GROUP = "wmAbc_-defghijklmnop", "wrAbc_-defghijklmnop"


@pytest.mark.parametrize(
    "value",
    [CUSTOMER, GROUP, OFFICIAL_CUSTOMER, "zhang.san@corp", "0f8fad5b-d9cb-469f-a165-70867728950e"],
)
def test_id_of_any_family_passes(value):
    assert id_problem(value) is None


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("", "id_empty"),
        ("  ", "id_empty"),
        ("7.88130E+15", "value_scientific"),
        ("1.68885E+15", "value_scientific"),
        ("1.68885e+15", "value_scientific"),
        ("2E+15", "value_scientific"),
        ("1,68885E+15", "value_scientific"),
        ("#N/A", "value_spreadsheet_error"),
        ("#REF!", "value_spreadsheet_error"),
        ("########", "value_spreadsheet_error"),
        ("788130 0000", "id_blank_inside"),
        ("7881300000000000\t", "id_blank_inside"),
        ("788\u200b130", "id_blank_inside"),
        ("788\u00a0130", "id_blank_inside"),
        ("788\x00130", "id_blank_inside"),
        ("x" * 65, "id_too_long"),
        ("7881300000000000.0", "id_decimal"),
        ("王芳", "id_characters"),
        ("'7881300000000000", "id_characters"),
        ("1|2", "id_characters"),
    ],
)
def test_id_that_cannot_be_one_is_named(value, code):
    problem = id_problem(value)
    assert problem is not None
    assert problem.code == code
    assert str(problem)


def test_id_in_scientific_notation_tells_the_cure():
    problem = id_problem("7.88130E+15")
    assert "7.88130E+15" in str(problem)
    assert "把该列设为文本格式后重新导出" in str(problem)


def test_id_longest_allowed_passes():
    assert id_problem("x" * 64) is None


@pytest.mark.parametrize("value", [GROUP, OFFICIAL_GROUP])
def test_customer_column_with_a_group_is_refused(value):
    assert customer_id_problem(value).code == "id_of_group"
    assert group_id_problem(value) is None


@pytest.mark.parametrize("value", [CUSTOMER, OFFICIAL_CUSTOMER])
def test_group_column_with_a_customer_is_refused(value):
    assert group_id_problem(value).code == "id_of_customer"
    assert customer_id_problem(value) is None


def test_foreign_id_is_refused_only_where_the_gateway_is_known_to_differ():
    assert foreign_id_problem(OFFICIAL_CUSTOMER, "wecomapi").code == "id_foreign"
    assert foreign_id_problem(OFFICIAL_CUSTOMER, "official") is None
    assert foreign_id_problem(CUSTOMER, "wecomapi") is None
    assert foreign_id_problem("wm1", "wecomapi") is None


@pytest.mark.parametrize("value", ["王芳", "24203", "1.5", "C#", "#1", "1e5", "E+"])
def test_damaged_ordinary_value_passes(value):
    assert damaged_problem(value) is None
