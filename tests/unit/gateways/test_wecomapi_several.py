"""The `wecomapi` adapter in calls of several targets: the wire, and what each answer proves."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batches.domain.categories import Category
from batches.domain.outcomes import Accepted, Refused, Unknown
from batches.gateways.base import CallSpec, GatewayConfig, Operation, RequestBuildError, TargetSpec
from batches.gateways.wecomapi import WecomApiGateway
from batches.gateways.wecomapi_options import OPTIONS
from batches.gateways.wecomapi_wire import Settings, wire_of

from .cases import GUID

GATEWAY = WecomApiGateway()
A, B, C = "7881300000000001", "7881300000000002", "7881300000000003"
ROOMS = ("10888000000000001", "10888000000000002")


def config(dialect: str = "path", **options) -> GatewayConfig:
    return GatewayConfig(
        "wecomapi", "https://manager.test", dialect, options={"multi_target": True, **options}
    )


def send(*targets: str, content: str = "你好") -> CallSpec:
    specs = tuple(TargetSpec(target, content) for target in targets)
    return CallSpec("call-1", GUID, Operation.SEND_TEXT, specs)


def tag(*specs: TargetSpec) -> CallSpec:
    return CallSpec("call-1", GUID, Operation.TAG_CUSTOMERS, specs)


def read(body: object, call: CallSpec | None = None, settings: GatewayConfig | None = None):
    call = call or send(A, B, C)
    outcomes = GATEWAY.parse(settings or config(), call, 200, {}, json.dumps(body).encode())
    assert len(outcomes) == len(call.targets)
    return outcomes


def results(*entries: object, code: int = 0, **data) -> dict[str, object]:
    return {"code": code, "msg": "x", "data": {"results": list(entries), **data}}


# --- request ------------------------------------------------------------------------------------


def test_build_path_dialect_send_to_several():
    request = GATEWAY.build(config(), send(A, B))
    assert request.url == "https://manager.test/message/sendGroupMsg"
    assert json.loads(request.body) == {
        "guid": GUID,
        "toIdList": [A, B],
        "msgList": [{"type": 0, "msgData": {"content": "你好"}}],
        "sendType": 0,
    }
    assert request.headers["X-Request-Id"] == "call-1"


def test_build_method_dialect_send_to_several_groups():
    request = GATEWAY.build(config("method"), send(*ROOMS))
    assert request.url == "https://manager.test/wecom/finder/api"
    body = json.loads(request.body)
    assert body["method"] == "/msg/sendGroupMsg"
    assert body["params"]["toIdList"] == list(ROOMS)
    assert body["params"]["sendType"] == 1


def test_build_tags_of_several_customers_each_with_its_own():
    call = tag(TargetSpec(A, tags=("1", "2")), TargetSpec(B, tags=("3",)))
    assert json.loads(GATEWAY.build(config("method"), call).body) == {
        "method": "/label/contactEditLabel",
        "params": {
            "guid": GUID,
            "opType": 1,
            "paramList": [
                {"userId": A, "labelIdList": ["1", "2"]},
                {"userId": B, "labelIdList": ["3"]},
            ],
        },
    }


TWENTY = tuple(map(str, range(20)))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (CallSpec("c", GUID, Operation.SEND_TEXT, (TargetSpec(A, "x"), TargetSpec(B, "y"))),
         "different contents"),
        (send(A, B, A), "twice"),
        (send(A, ROOMS[0]), "customers and groups"),
        (send(*(str(number) for number in range(51))), "more than 50 targets"),
        (tag(TargetSpec(A, tags=("1",)), TargetSpec(B, remove_tags=("1",))), "add and remove"),
        (tag(TargetSpec(A, tags=TWENTY), TargetSpec(B, tags=("21",))), "20 different tags"),
        (CallSpec("c", GUID, Operation.SET_GROUP_WELCOME,
                  tuple(TargetSpec(room, "x") for room in ROOMS)), "more than 1"),
        (CallSpec("c", GUID, Operation.SEND_TEXT, ()), "without a target"),
    ],
)  # fmt: skip
def test_build_several_that_cannot_share_a_call_is_refused_with_the_reason(call, said):
    with pytest.raises(RequestBuildError, match=said):
        GATEWAY.build(config(), call)


def test_build_several_shares_twenty_tags():
    call = tag(TargetSpec(A, tags=TWENTY), TargetSpec(B, tags=TWENTY[:3]))
    assert GATEWAY.build(config(), call).body


def test_build_several_options_override_what_is_on_the_wire():
    own = config(
        path_send_group="/mass", field_to_list="toIds", field_messages="list",
        field_message_type="msgType", field_message_data="body", field_send_type="kind",
        message_type_text=1, send_type_contacts="c", send_type_groups="g",
        multi_target_max=2, multi_target_labels=1,
    )  # fmt: skip
    assert GATEWAY.validate(own) == []
    request = GATEWAY.build(own, send(A, B))
    assert request.url == "https://manager.test/mass"
    assert json.loads(request.body) == {
        "guid": GUID,
        "toIds": [A, B],
        "list": [{"msgType": 1, "body": {"content": "你好"}}],
        "kind": "c",
    }
    assert json.loads(GATEWAY.build(own, send(*ROOMS)).body)["kind"] == "g"
    assert GATEWAY.max_targets(own, Operation.SEND_TEXT) == 2
    specs = (TargetSpec(A, tags=("1",)), TargetSpec(B, tags=("2",)))
    assert GATEWAY.fitting(own, Operation.TAG_CUSTOMERS, specs) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("multi_target", 1),
        ("multi_target", "true"),
        ("multi_target_max", 0),
        ("multi_target_max", True),
        ("multi_target_labels", 1001),
        ("multi_target_all_or_nothing", None),
        ("reply_results", None),
        ("reply_to", ""),
    ],
)
def test_validate_option_for_several_that_does_not_fit_is_named_and_not_used(name, value):
    (problem,) = GATEWAY.validate_options({name: value})
    assert problem.code == "gateway_option_invalid"
    assert name in str(problem)
    settings = wire_of(
        GatewayConfig("wecomapi", "http://x", "path", options={name: value})
    ).settings
    assert getattr(settings, name) == OPTIONS[name].default


def test_settings_hold_every_option_and_no_other():
    assert [field.name for field in dataclasses.fields(Settings)] == list(OPTIONS)


def test_configuration_is_worked_out_once_and_changes_no_equality():
    one, other = config(), config()
    assert wire_of(one) is wire_of(one)
    assert one == other
    changed = dataclasses.replace(one, base_url="http://other")
    assert wire_of(changed) is not wire_of(one)
    assert GATEWAY.build(changed, send(A)).url == "http://other/message/sendText"


# --- answer -------------------------------------------------------------------------------------

SENT = {"toId": A, "isSendSuccess": 1, "code": 0, "msgServerId": 5, "msgUniqueIdentifier": "u"}
OTHERS = ({"toId": B, "code": 0}, {"toId": C, "code": 84061, "msg": "不是好友"})


def test_parse_each_target_has_its_own_outcome():
    assert read(results(SENT, *OTHERS)) == [
        Accepted("u"),
        Accepted(),
        Refused(Category.TARGET_INVALID, "84061", "不是好友"),
    ]


@pytest.mark.parametrize(
    ("entry", "outcome"),
    [
        ({"isSendSuccess": 1}, Accepted()),
        ({"isSendSuccess": 1, "msgServerId": 7}, Accepted("7")),
        ({"code": 0, "msgUniqueIdentifier": "u"}, Accepted("u")),
        ({"code": 45009}, Refused(Category.RATE_LIMITED, "45009")),
        ({"code": 987654, "isSendSuccess": 0}, Refused(Category.OTHER, "987654")),
        ({"code": 40003, "msg": "无效"}, Refused(Category.TARGET_INVALID, "40003", "无效")),
    ],
)
def test_parse_result_that_proves_something(entry, outcome):
    assert read(results({"toId": A, **entry}))[0] == outcome


@pytest.mark.parametrize(
    ("entry", "category"),
    [
        ({}, Category.UNREADABLE),
        ({"isSendSuccess": 0}, Category.UNREADABLE),
        ({"isSendSuccess": True}, Category.UNREADABLE),
        ({"code": 0, "isSendSuccess": 0}, Category.UNREADABLE),
        ({"code": 40003, "isSendSuccess": 1}, Category.UNREADABLE),
        ({"code": 40003, "msgServerId": 9}, Category.UNREADABLE),
        ({"code": None, "isSendSuccess": 1}, Category.UNREADABLE),
        ({"code": "0"}, Category.UNREADABLE),
        ({"code": False}, Category.UNREADABLE),
        ({"code": 200}, Category.UNREADABLE),
        ({"code": [0]}, Category.UNREADABLE),
        ({"msgUniqueIdentifier": "u"}, Category.UNREADABLE),
        ({"code": 500, "msg": "系统异常"}, Category.SERVER_ERROR),
    ],
)
def test_parse_result_that_proves_nothing_is_in_doubt(entry, category):
    outcome = read(results({"toId": A, **entry}, *OTHERS))[0]
    assert isinstance(outcome, Unknown)
    assert outcome.category is category
    assert A in outcome.message


@pytest.mark.parametrize("name", [[A], {"id": A}, None, True, 7881300000000001.0, "", A + " "])
def test_parse_result_of_an_unreadable_target_is_nobodys(name):
    for outcome in read(results({"toId": name, "code": 0})):
        assert isinstance(outcome, Unknown)


def test_parse_target_written_as_a_number_is_the_same_target():
    assert read(results({"toId": int(A), "code": 0}))[0] == Accepted()


@pytest.mark.parametrize("listed", [{}, {A: 0}, "ok", 1, True, [[SENT]], [None]])
def test_parse_results_of_another_type_are_in_doubt(listed):
    for outcome in read({"code": 0, "data": {"results": listed}}):
        assert isinstance(outcome, Unknown)


def test_parse_flag_of_the_whole_must_agree():
    assert read(results(SENT, isSendSuccess=1))[0] == Accepted("u")
    assert isinstance(read(results(SENT, isSendSuccess=0))[0], Unknown)


@pytest.mark.parametrize("listed", [None, [], {}, ""])
def test_parse_refusal_of_the_whole_without_results_holds_for_each(listed):
    outcomes = read({"code": 45009, "msg": "慢", "data": {"results": listed}})
    assert outcomes == [Refused(Category.RATE_LIMITED, "45009", "慢")] * 3


@pytest.mark.parametrize("listed", [{A: 0}, "queued", 1, True])
def test_parse_refusal_of_the_whole_beside_something_else_is_in_doubt(listed):
    for outcome in read({"code": 45009, "data": {"results": listed}}):
        assert isinstance(outcome, Unknown)


def test_parse_refusal_of_the_whole_with_refusals_gives_each_its_own():
    first, second, third = read(results(*OTHERS[1:], code=45009))
    assert first == second == Refused(Category.RATE_LIMITED, "45009", "x")
    assert third == Refused(Category.TARGET_INVALID, "84061", "不是好友")


@pytest.mark.parametrize("entry", [SENT, {"toId": A}, {"toId": "stranger", "code": 0}, 5])
def test_parse_refusal_of_the_whole_that_is_contradicted_holds_only_where_repeated(entry):
    first, second, third = read(results(entry, OTHERS[1], code=45009))
    assert isinstance(first, Unknown)
    assert isinstance(second, Unknown)
    assert third == Refused(Category.TARGET_INVALID, "84061", "不是好友")


@pytest.mark.parametrize("data", [None, {}, {"isSendSuccess": 1, "msgServerId": 7}])
def test_parse_success_without_results_is_accepted_only_where_the_gateway_is_all_or_nothing(data):
    body = {"code": 0, "data": data}
    assert all(isinstance(outcome, Unknown) for outcome in read(body))
    own = config(multi_target_all_or_nothing=True)
    # the whole call's id is no target's id
    assert read(body, settings=own) == [Accepted()] * 3
    assert all(isinstance(outcome, Unknown) for outcome in read(results(), settings=own))
    assert isinstance(read({"code": 0, "data": {"isSendSuccess": 0}}, settings=own)[0], Unknown)


def test_parse_results_may_be_named_otherwise_or_be_the_data_itself():
    own = config(reply_results="list", reply_to="to", success_codes=[0, 200])
    body = {"code": 200, "data": {"list": [{"to": B, "code": 200}]}}
    assert read(body, settings=own)[1] == Accepted()
    bare = config(reply_results="")
    assert GATEWAY.validate(bare) == []
    assert read({"code": 0, "data": [SENT, *OTHERS]}, settings=bare)[0] == Accepted("u")
    assert read({"code": 45009, "data": []}, settings=bare)[0] == Refused(
        Category.RATE_LIMITED, "45009"
    )
    assert isinstance(read({"code": 45009, "data": [SENT]}, settings=bare)[0], Unknown)
    for data in (None, {}, "ok"):
        assert isinstance(read({"code": 0, "data": data}, settings=bare)[0], Unknown)


def test_parse_tags_are_matched_by_their_own_field():
    call = tag(TargetSpec(A, tags=("1",)), TargetSpec(B, tags=("1",)))
    told = results({"userId": B, "code": 0}, {"toId": A, "code": 0})
    first, second = read(told, call)
    assert isinstance(first, Unknown)
    assert second == Accepted()


def test_parse_tags_of_one_customer_heed_a_result_where_there_is_one():
    call = tag(TargetSpec(A, tags=("1",)))
    assert read({"code": 0, "data": {}}, call) == [Accepted()]
    assert read(results({"userId": A, "code": 84061}), call) == [
        Refused(Category.TARGET_INVALID, "84061")
    ]
    assert isinstance(read(results({"userId": B, "code": 0}), call)[0], Unknown)


NEAR_ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "toId": st.sampled_from([A, B, C, "x", None, int(A), [A]]),
        "code": st.sampled_from([0, 0.0, False, "0", None, 200, 45009, 500]),
        "isSendSuccess": st.sampled_from([1, 0, True, None, "1"]),
        "msgUniqueIdentifier": st.sampled_from(["", "u", None]),
    },
)


@given(st.sampled_from([0, 0, 0, 200, 45009, None]), st.lists(NEAR_ENTRIES | st.none(), max_size=5))
def test_parse_target_is_accepted_only_by_a_success_of_its_own(code, entries):
    """The rule once more, independently: integer 0 for the call, and one entry that says yes."""
    outcomes = read({"code": code, "data": {"results": entries}})
    for target, outcome in zip((A, B, C), outcomes, strict=True):
        own = [
            entry
            for entry in entries
            if entry and (entry.get("toId") == target or entry.get("toId") == int(target))
        ]
        proven = (
            code == 0
            and len(own) == 1
            and ("code" in own[0] or "isSendSuccess" in own[0])
            and ("code" not in own[0] or (type(own[0]["code"]) is int and own[0]["code"] == 0))
            and ("isSendSuccess" not in own[0] or repr(own[0]["isSendSuccess"]) == "1")
        )
        assert isinstance(outcome, Accepted) == proven
