"""What every gateway adapter must keep, whatever its wire format."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batches.domain.categories import CATEGORIES, Category
from batches.domain.errors import InvalidInputError
from batches.domain.outcomes import Accepted, NotSent, Refused, Unknown
from batches.gateways.base import CallSpec, GatewayConfig, Operation, RequestBuildError, TargetSpec
from batches.gateways.registry import gateway_kinds, get_gateway

from .cases import CASES, GUID, TARGET, Case, call_of

SEND = call_of(Operation.SEND_TEXT)
pytestmark = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def parse(case: Case, status: int, body: bytes, headers=None, call: CallSpec = SEND):
    return get_gateway(case.config.kind).parse(case.config, call, status, headers or {}, body)


def test_parse_success_is_accepted_with_the_message_id(case):
    assert parse(case, 200, case.success("abc-1")) == [Accepted("abc-1", final=True)]


@pytest.mark.parametrize(
    ("code", "category"),
    [
        (-1, Category.RETRY_SYSTEM),
        (6000, Category.RETRY_SYSTEM),
        (41063, Category.RETRY_SYSTEM),
        (45009, Category.RATE_LIMITED),
        (45033, Category.RATE_LIMITED),
        (40001, Category.CREDENTIAL),
        (40014, Category.CREDENTIAL),
        (42001, Category.CREDENTIAL),
        (48002, Category.PERMISSION),
        (60011, Category.PERMISSION),
        (60020, Category.PERMISSION),
        (50003, Category.PERMISSION),
        (40003, Category.TARGET_INVALID),
        (40096, Category.TARGET_INVALID),
        (84061, Category.TARGET_INVALID),
        (86008, Category.TARGET_INVALID),
        (49008, Category.TARGET_INVALID),
        (40068, Category.TAG_INVALID),
        (40071, Category.TAG_INVALID),
        (41055, Category.QUOTA_LIMIT),
        (82002, Category.QUOTA_LIMIT),
        (45002, Category.CONTENT_INVALID),
        (44004, Category.CONTENT_INVALID),
        (85002, Category.CONTENT_INVALID),
        (40035, Category.PARAM),
        (40058, Category.PARAM),
        (41009, Category.PARAM),
        (987654, Category.OTHER),
    ],
)
def test_parse_refusal_has_the_category_of_its_code(case, code, category):
    (outcome,) = parse(case, 200, case.refusal(code))
    assert outcome == Refused(category, str(code), "失败")


@pytest.mark.parametrize("status", [500, 502, 503, 504, 520])
@pytest.mark.parametrize("body", [b"", b"<html>Bad Gateway</html>", b'{"code":500,"msg":"x"}'])
def test_parse_5xx_without_a_documented_refusal_is_unknown(case, status, body):
    (outcome,) = parse(case, status, body)
    assert isinstance(outcome, Unknown)
    assert outcome.category is Category.SERVER_ERROR
    assert str(status) in outcome.message


def test_parse_5xx_with_a_documented_refusal_is_refused(case):
    (outcome,) = parse(case, 503, case.refusal(45009))
    assert isinstance(outcome, Refused)
    assert outcome.category is Category.RATE_LIMITED


@pytest.mark.parametrize("status", [100, 204, 301, 302, 307, 308, 408, 409, 425, 499, 600, 0])
def test_parse_status_that_proves_nothing_is_unknown(case, status):
    (outcome,) = parse(case, status, b"")
    assert isinstance(outcome, Unknown)


@pytest.mark.parametrize("status", [301, 400, 404, 429, 500])
def test_parse_success_body_under_another_status_is_unknown(case, status):
    (outcome,) = parse(case, status, case.success("x"))
    assert isinstance(outcome, Unknown)


@pytest.mark.parametrize(
    ("status", "category"),
    [
        (400, Category.PARAM),
        (401, Category.CREDENTIAL),
        (403, Category.PERMISSION),
        (404, Category.PARAM),
        (405, Category.PARAM),
        (413, Category.CONTENT_INVALID),
        (422, Category.PARAM),
    ],
)
def test_parse_4xx_of_the_http_server_is_refused(case, status, category):
    (outcome,) = parse(case, status, b"<html>no</html>")
    assert outcome == Refused(category, f"HTTP {status}", "<html>no</html>")


def test_parse_4xx_with_a_code_is_classified_by_it(case):
    (outcome,) = parse(case, 400, case.refusal(84061))
    assert outcome == Refused(Category.TARGET_INVALID, "84061", "失败")
    (outcome,) = parse(case, 403, case.refusal(987654))
    assert outcome == Refused(Category.PERMISSION, "987654", "失败")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after": " 2.5 "}, 2.5),
        ({"Retry-After": "99999999"}, 86400.0),
        (
            {
                "Retry-After": "Sun, 29 Nov 2026 10:00:30 GMT",
                "Date": "Sun, 29 Nov 2026 10:00:00 GMT",
            },
            30.0,
        ),
        ({"Retry-After": "Sun, 29 Nov 2026 10:00:30 GMT"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-1"}, None),
        ({"Retry-After": "nan"}, None),
        ({}, None),
    ],
)
def test_parse_429_is_rate_limited_with_the_wait_asked_for(case, headers, seconds):
    (outcome,) = parse(case, 429, b"slow down", headers)
    assert outcome == Refused(Category.RATE_LIMITED, "HTTP 429", "slow down", seconds)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"OK",
        b"null",
        b"0",
        b"true",
        b"[]",
        b'"success"',
        b"{}",
        b"[" * 100_000,
        b'{"code":' + b"9" * 5000 + b"}",
        b'{"code":0' + b"0" * 30 + b"}",
        b"\xff\xfe{\x00}\x00",
        b"\xd6\xd0\xce\xc4",
        b"x" * (2 << 20),
    ],
)
def test_parse_unreadable_body_is_unknown(case, body):
    (outcome,) = parse(case, 200, body)
    assert isinstance(outcome, Unknown)
    assert outcome.category is Category.UNREADABLE
    assert len(outcome.message) < 500


def test_parse_truncated_success_is_unknown_at_every_cut(case):
    whole = case.success("abc-1")
    for cut in range(len(whole)):
        (outcome,) = parse(case, 200, whole[:cut])
        assert isinstance(outcome, Unknown)


def test_parse_gives_one_outcome_per_target_in_order(case):
    targets = tuple(TargetSpec(str(number), "x") for number in range(3))
    call = CallSpec("c", GUID, Operation.SEND_TEXT, targets)
    assert len(parse(case, 200, case.success("abc"), call=call)) == 3
    assert len(parse(case, 500, b"", call=call)) == 3


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(st.integers(-1, 700), st.binary(max_size=400), st.dictionaries(st.text(), st.text()))
def test_parse_arbitrary_bytes_never_raises_and_is_never_accepted(case, status, body, headers):
    (outcome,) = parse(case, status, body, headers)
    assert isinstance(outcome, Refused | Unknown)


@given(st.integers(100, 599), JSON)
def test_parse_arbitrary_json_never_raises_and_stays_storable(case, status, value):
    (outcome,) = parse(case, status, json.dumps(value).encode("utf-8", "surrogatepass"))
    assert isinstance(outcome, Refused | Unknown)
    outcome.message.encode()
    assert len(outcome.message) <= 500
    assert "\x00" not in outcome.message


@pytest.mark.parametrize("operation", list(Operation))
def test_build_gives_utf8_json_with_ids_as_strings(case, operation):
    request = get_gateway(case.config.kind).build(case.config, call_of(operation))
    assert request.method == "POST"
    assert request.url.startswith("http://gateway.test:9100/")
    assert "//" not in request.url.removeprefix("http://")
    assert request.headers["Content-Type"].startswith("application/json")
    ids = case.ids_in(request)
    assert GUID in ids
    assert TARGET in ids
    assert all(isinstance(value, str) for value in ids)
    assert b"\\u" not in request.body


@given(content=st.text(min_size=1), target=st.text(min_size=1), guid=st.text(min_size=1))
def test_build_any_text_survives_the_wire(case, content, target, guid):
    call = CallSpec("c", guid, Operation.SEND_TEXT, (TargetSpec(target, content),))
    request = get_gateway(case.config.kind).build(case.config, call)
    assert case.ids_in(request) == [guid, target]
    assert json.dumps(content, ensure_ascii=False).encode() in request.body


def test_build_same_call_gives_the_same_request(case):
    gateway = get_gateway(case.config.kind)
    assert gateway.build(case.config, SEND) == gateway.build(case.config, SEND)


@pytest.mark.parametrize("operation", list(Operation))
def test_build_wrong_number_of_targets_is_refused(case, operation):
    gateway = get_gateway(case.config.kind)
    too_many = (TargetSpec("1", "x"),) * (gateway.max_targets(case.config, operation) + 1)
    for targets in ((), too_many):
        with pytest.raises(RequestBuildError):
            gateway.build(case.config, CallSpec("c", GUID, operation, targets))


def test_build_half_a_surrogate_is_refused(case):
    with pytest.raises(RequestBuildError):
        get_gateway(case.config.kind).build(
            case.config, call_of(Operation.SEND_TEXT, TargetSpec(TARGET, "\ud83d"))
        )


def test_build_token_that_breaks_the_header_is_refused(case):
    config = GatewayConfig("wecomapi", case.config.base_url, case.config.dialect, "a\r\nX: y")
    with pytest.raises(RequestBuildError):
        get_gateway(config.kind).build(config, SEND)


def test_validate_the_case_itself_is_clean(case):
    assert get_gateway(case.config.kind).validate(case.config) == []
    assert case.config.kind in gateway_kinds()


def test_every_outcome_category_is_described(case):
    for status in range(100, 700):
        (outcome,) = parse(case, status, b"{}")
        assert not isinstance(outcome, Accepted | NotSent)
        assert outcome.category in CATEGORIES


def test_get_gateway_unknown_kind_is_refused(case):
    with pytest.raises(InvalidInputError, match="网关类型"):
        get_gateway(case.config.kind + "x")
