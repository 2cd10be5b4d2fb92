"""The `wecomapi` adapter: both dialects on the wire, its success rule, its options."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batches.domain.categories import Category
from batches.domain.outcomes import Accepted, Refused, Unknown
from batches.gateways.base import CallSpec, GatewayConfig, Operation, RequestBuildError, TargetSpec
from batches.gateways.wecomapi import WecomApiGateway
from batches.gateways.wecomapi_options import OPTIONS, option

from .cases import GUID, TARGET, call_of

GATEWAY = WecomApiGateway()
SEND = call_of(Operation.SEND_TEXT)
PATH = GatewayConfig("wecomapi", "https://manager.test", "path")
METHOD = GatewayConfig("wecomapi", "https://manager.test/base/", "method", token="T0")


def with_options(**options) -> GatewayConfig:
    return GatewayConfig("wecomapi", "https://manager.test", "path", options=options)


def read(body: object, config: GatewayConfig = PATH, status: int = 200):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    (outcome,) = GATEWAY.parse(config, SEND, status, {}, data)
    return outcome


def test_build_path_dialect_send_text():
    request = GATEWAY.build(PATH, SEND)
    assert request.url == "https://manager.test/message/sendText"
    assert json.loads(request.body) == {"guid": GUID, "toId": TARGET, "content": "你好"}
    assert request.headers["X-Request-Id"] == "call-1"
    assert "WECOM-TOKEN" not in request.headers


def test_build_method_dialect_send_text():
    request = GATEWAY.build(METHOD, SEND)
    assert request.url == "https://manager.test/base/wecom/finder/api"
    assert json.loads(request.body) == {
        "method": "/msg/sendText",
        "params": {"guid": GUID, "toId": TARGET, "content": "你好"},
    }
    assert request.headers["WECOM-TOKEN"] == "T0"


def test_build_group_welcome():
    call = call_of(Operation.SET_GROUP_WELCOME, TargetSpec("10888000000000000", "欢迎"))
    request = GATEWAY.build(PATH, call)
    assert request.url == "https://manager.test/room/setWelcome"
    assert json.loads(request.body) == {
        "guid": GUID,
        "roomId": "10888000000000000",
        "content": "欢迎",
    }


@pytest.mark.parametrize(
    ("target", "op_type"),
    [(TargetSpec(TARGET, tags=("1", "2")), 1), (TargetSpec(TARGET, remove_tags=("1", "2")), 2)],
)
def test_build_tags(target, op_type):
    request = GATEWAY.build(METHOD, call_of(Operation.TAG_CUSTOMERS, target))
    assert json.loads(request.body) == {
        "method": "/label/contactEditLabel",
        "params": {
            "guid": GUID,
            "opType": op_type,
            "paramList": [{"userId": TARGET, "labelIdList": ["1", "2"]}],
        },
    }


@pytest.mark.parametrize(
    "target", [TargetSpec(TARGET), TargetSpec(TARGET, tags=("1",), remove_tags=("2",))]
)
def test_build_tags_both_ways_or_none_is_refused(target):
    with pytest.raises(RequestBuildError):
        GATEWAY.build(PATH, call_of(Operation.TAG_CUSTOMERS, target))


def test_build_unknown_dialect_is_refused():
    with pytest.raises(RequestBuildError):
        GATEWAY.build(GatewayConfig("wecomapi", "http://x", "soap"), SEND)


def test_build_options_override_what_is_on_the_wire():
    config = GatewayConfig(
        "wecomapi",
        "http://x",
        "method",
        "T0",
        {
            "method_path": "/qiwe/api/qw/doApi",
            "method_send_text": "/v2/send",
            "token_header": "X-QIWEI-TOKEN",
            "headers": {"X-Tenant": "7"},
            "field_method": "m",
            "field_params": "p",
            "field_guid": "instance",
            "field_to": "to",
            "field_content": "text",
            "field_request_id": "requestId",
            "request_id_header": "",
        },
    )
    assert GATEWAY.validate(config) == []
    request = GATEWAY.build(config, SEND)
    assert request.url == "http://x/qiwe/api/qw/doApi"
    assert json.loads(request.body) == {
        "m": "/v2/send",
        "p": {"instance": GUID, "to": TARGET, "text": "你好", "requestId": "call-1"},
    }
    assert request.headers["X-QIWEI-TOKEN"] == "T0"
    assert request.headers["X-Tenant"] == "7"
    assert "X-Request-Id" not in request.headers


@pytest.mark.parametrize(
    ("data", "msg_id"),
    [
        ({"isSendSuccess": 1, "msgServerId": 5, "msgUniqueIdentifier": "u"}, "u"),
        ({"isSendSuccess": 1, "msgServerId": 10888000000000001}, "10888000000000001"),
        ({"isSendSuccess": 1, "msgServerId": "77", "msgUniqueIdentifier": ""}, "77"),
        ({"isSendSuccess": 1, "msgServerId": 0}, ""),
        ({"isSendSuccess": 1, "msgServerId": True, "msgUniqueIdentifier": ["u"]}, ""),
        ({"isSendSuccess": 1, "msgUniqueIdentifier": "a b"}, ""),
        ({"isSendSuccess": 1, "msgUniqueIdentifier": "u" * 129}, ""),
        ({}, ""),
        (None, ""),
    ],
)
def test_parse_message_id_is_the_one_an_echo_carries(data, msg_id):
    assert read({"code": 0, "data": data}) == Accepted(msg_id)


def test_parse_success_without_data_is_accepted():
    assert read({"code": 0, "msg": "成功"}) == Accepted()


@pytest.mark.parametrize("sent", [0, 2, None, True, "1", 1.0, [1], {}])
def test_parse_success_code_with_another_send_flag_is_unknown(sent):
    outcome = read({"code": 0, "data": {"isSendSuccess": sent, "msgServerId": 1}})
    assert isinstance(outcome, Unknown)
    assert outcome.category is Category.UNREADABLE


@pytest.mark.parametrize("code", [None, False, "0", 0.0, [0], {}, 0.5, "ok"])
def test_parse_code_of_another_type_is_unknown(code):
    assert isinstance(read({"code": code, "data": {"isSendSuccess": 1}}), Unknown)
    assert isinstance(read({"code": code}), Unknown)


@pytest.mark.parametrize("data", [[], [{}], "", "ok", 1, True])
def test_parse_success_with_data_of_another_type_is_unknown(data):
    assert isinstance(read({"code": 0, "data": data}), Unknown)


@pytest.mark.parametrize("data", [None, {}, [], "", {"isSendSuccess": 0}])
def test_parse_refusal_with_empty_data_is_refused(data):
    assert read({"code": 40003, "message": "无效", "data": data}) == Refused(
        Category.TARGET_INVALID, "40003", "无效"
    )


@pytest.mark.parametrize(
    "data",
    [{"isSendSuccess": 1}, {"msgServerId": 9}, {"msgUniqueIdentifier": "u"}, [1], "queued"],
)
def test_parse_refusal_that_claims_an_effect_is_unknown(data):
    assert isinstance(read({"code": 40003, "data": data}), Unknown)


@pytest.mark.parametrize("body", [b'{"code":0,"code":0}', b'{"code":40003,"code":0}'])
def test_parse_duplicate_keys_are_unknown(body):
    assert isinstance(read(body), Unknown)
    assert isinstance(read(b'{"code":0,"data":{"isSendSuccess":0,"isSendSuccess":1}}'), Unknown)


@pytest.mark.parametrize("code", [200, 201, 299])
def test_parse_code_that_means_success_elsewhere_is_never_a_refusal(code):
    assert isinstance(read({"code": code}), Unknown)
    assert isinstance(read({"code": 0}, with_options(success_codes=[200])), Unknown)


@pytest.mark.parametrize("code", [500, 502, 599])
def test_parse_code_that_mirrors_a_5xx_is_unknown(code):
    outcome = read({"code": code, "msg": "系统异常"})
    assert isinstance(outcome, Unknown)
    assert outcome.category is Category.SERVER_ERROR
    told = read({"code": code}, with_options(codes={str(code): "retry_system"}))
    assert told == Refused(Category.RETRY_SYSTEM, str(code))


@pytest.mark.parametrize("code", [11002, 11013, 11017, 11022, 11023, 11024, 11025])
def test_parse_login_state_is_a_credential_failure(code):
    outcome = read({"code": code, "msg": "x"})
    assert isinstance(outcome, Refused)
    assert outcome.category is Category.CREDENTIAL


def test_parse_gateway_own_codes_win_over_the_table():
    config = with_options(codes={"40003": "permission"})
    assert GATEWAY.validate(config) == []
    assert read({"code": 40003}, config) == Refused(Category.PERMISSION, "40003")


def test_parse_success_codes_may_be_others_and_text():
    assert read({"code": 200}, with_options(success_codes=[0, 200])) == Accepted()
    text = with_options(success_codes=["0000"])
    assert read({"code": "0000"}, text) == Accepted()
    assert read({"code": "45009"}, text) == Refused(Category.RATE_LIMITED, "45009")
    assert isinstance(read({"code": "E_FAIL"}, text), Unknown)


def test_parse_reply_fields_may_be_named_otherwise():
    config = with_options(
        reply_code="errcode", reply_data="result", reply_sent="ok", sent_value=True,
        reply_unique_id="mid",
    )  # fmt: skip
    assert GATEWAY.validate(config) == []
    assert read({"errcode": 0, "result": {"ok": True, "mid": "m1"}}, config) == Accepted("m1")
    assert isinstance(read({"errcode": 0, "result": {"ok": 1}}, config), Unknown)


def test_parse_message_is_clipped_and_fit_for_postgresql():
    outcome = read({"code": 40003, "msg": "a\x00b\ud800" + "长" * 900})
    assert isinstance(outcome, Refused)
    assert outcome.message.startswith("ab长")
    assert len(outcome.message) <= 500


NEAR_REPLIES = st.fixed_dictionaries(
    {},
    optional={
        "code": st.sampled_from([0, 0.0, False, "0", None, 200, 45009, -1, 500, [0]]),
        "msg": st.text(max_size=5),
        "data": st.none()
        | st.lists(st.integers(), max_size=1)
        | st.fixed_dictionaries(
            {},
            optional={
                "isSendSuccess": st.sampled_from([1, 0, True, None, "1", 1.0]),
                "msgServerId": st.sampled_from([0, 1, "x", None, 10**30]),
                "msgUniqueIdentifier": st.sampled_from(["", "u", None, 5]),
            },
        ),
    },
)


@given(st.sampled_from([200, 201, 302, 400, 404, 429, 500, 503]), NEAR_REPLIES)
def test_parse_is_accepted_only_by_the_success_rule(status, body):
    """The rule written once more, independently: 2xx, integer 0, and flag 1 where there is one."""
    outcome = read(body, status=status)
    code, data = body.get("code"), body.get("data")
    rule = (
        200 <= status < 300
        and type(code) is int
        and code == 0
        and (data is None or isinstance(data, dict))
        and (
            not data
            or "isSendSuccess" not in data
            or (type(data["isSendSuccess"]) is int and data["isSendSuccess"] == 1)
        )
    )
    assert isinstance(outcome, Accepted) == rule


BAD_OPTIONS = {
    "path_send_text": ["message/sendText", "", "/a b", 5, None],
    "token_header": ["", "X Token", "X\r\nY", 1],
    "headers": [[], {"X": "a\nb"}, {"X Y": "a"}, {"X": 1}],
    "field_guid": ["", "x" * 65, 3, "a\nb"],
    "success_codes": [[], 0, [True], [0.5], "0"],
    "sent_value": [None, [], 1.5],
    "codes": [{"x": "param"}, {"1": "timeout"}, {"1": "nonsense"}, [], {"1": 1}],
    "op_add": [None, {}],
    "field_request_id": [None, 4],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in BAD_OPTIONS.items() for value in values]
)
def test_validate_option_that_does_not_fit_is_named_and_not_used(name, value):
    (problem,) = GATEWAY.validate_options({name: value})
    assert problem.code == "gateway_option_invalid"
    assert name in str(problem)
    assert option({name: value}, name) == OPTIONS[name].default
    config = with_options(**{name: value})
    GATEWAY.build(config, SEND)
    GATEWAY.parse(config, SEND, 200, {}, b'{"code":1}')


@pytest.mark.parametrize("header", ["Authorization", "X-Api-Key", "Cookie", "X-QIWEI-TOKEN"])
def test_validate_header_that_carries_a_credential_is_refused(header):
    """Options are kept and shown as they are; a token is encrypted and never shown."""
    (problem,) = GATEWAY.validate_options({"headers": {header: "s3cret", "X-Tenant": "7"}})
    assert problem.code == "gateway_header_secret"
    assert header in str(problem)
    assert "s3cret" not in str(problem)


def test_validate_unknown_option_is_named():
    (problem,) = GATEWAY.validate_options({"path_sendtext": "/x"})
    assert problem.code == "gateway_option_unknown"
    assert "path_sendtext" in str(problem)


def test_validate_defaults_fit_themselves():
    assert GATEWAY.validate_options({name: known.default for name, known in OPTIONS.items()}) == []


@pytest.mark.parametrize(
    "url",
    ["", "manager.test", "ftp://x", "http://", "http://x:port", "http://x/?a=1", "http://x y"],
)
def test_validate_unusable_address_is_refused(url):
    (problem,) = GATEWAY.validate(GatewayConfig("wecomapi", url, "path"))
    assert problem.code == "gateway_url_invalid"


def test_validate_dialect_and_token():
    config = GatewayConfig("wecomapi", "http://x", "soap", "令牌")
    codes = [problem.code for problem in GATEWAY.validate(config)]
    assert codes == ["gateway_dialect_unknown", "gateway_token_invalid"]


@given(st.text(max_size=20), st.text(max_size=20))
def test_build_path_dialect_body_is_exactly_the_three_fields(guid, target):
    call = CallSpec("c", guid, Operation.SEND_TEXT, (TargetSpec(target, "x"),))
    assert json.loads(GATEWAY.build(PATH, call).body) == {
        "guid": guid,
        "toId": target,
        "content": "x",
    }
