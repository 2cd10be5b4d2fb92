"""Calls of several targets over real HTTP: a result for each, faults by target, the adapter."""

from __future__ import annotations

import pytest

from batches.domain.categories import Category
from batches.domain.outcomes import Accepted, Refused, Unknown
from batches.gateways.base import CallSpec, GatewayConfig, Operation, TargetSpec
from batches.gateways.wecomapi import WecomApiGateway

from .conftest import GUID, eventually

CUSTOMERS = tuple(str(7881300000000000 + number) for number in range(3))
ROOMS = ("10888000000000001", "10888000000000002")


def group_message(sim, *targets: str, **more):
    body = {
        "guid": GUID,
        "toIdList": list(targets or CUSTOMERS),
        "msgList": [{"type": 0, "msgData": {"content": "你好"}}],
        "sendType": 0,
        **more,
    }
    return sim.post("/message/sendGroupMsg", body, headers={"X-Request-Id": "call-9"})


def lines(answer) -> list[dict[str, object]]:
    assert answer.status_code == 200
    assert answer.json()["code"] == 0
    return answer.json()["data"]["results"]


def test_send_group_msg_takes_effect_on_each_target_under_one_request(sim):
    told = lines(group_message(sim))
    calls = sim.calls()
    assert [line["toId"] for line in told] == [call["target"] for call in calls] == list(CUSTOMERS)
    assert [line["msgUniqueIdentifier"] for line in told] == [call["msg_id"] for call in calls]
    assert [str(line["msgServerId"]) for line in told] == [call["server_id"] for call in calls]
    assert all((line["code"], line["isSendSuccess"]) == (0, 1) for line in told)
    assert len({call["msg_id"] for call in calls}) == 3
    assert {call["request_id"] for call in calls} == {"call-9"}
    assert {call["content"] for call in calls} == {"你好"}
    stats = sim.get("/_sim/stats").json()
    assert (stats["requests"], stats["total"]) == (1, 3)
    assert stats["accounts"][GUID]["window"] == 3


def test_tags_of_several_customers_are_each_its_own(sim):
    edits = [
        {"userId": CUSTOMERS[0], "labelIdList": ["1", "2"]},
        {"userId": CUSTOMERS[1], "labelIdList": ["3"]},
    ]
    body = {"guid": GUID, "opType": 1, "paramList": edits}
    told = lines(sim.post("/label/contactEditLabel", body))
    assert [(line["userId"], line["code"]) for line in told] == [(c, 0) for c in CUSTOMERS[:2]]
    assert [call["tags"] for call in sim.calls()] == [["1", "2"], ["3"]]


@pytest.mark.parametrize("send_type", [0, 1])
def test_send_group_msg_refuses_targets_of_the_other_type(sim, send_type):
    told = lines(group_message(sim, CUSTOMERS[0], ROOMS[0], sendType=send_type))
    codes = [line["code"] for line in told]
    assert codes == ([0, 40003] if send_type == 0 else [40003, 0])
    assert sim.targets() == [(CUSTOMERS[0], ROOMS[0])[send_type]]


def test_fault_by_target_refuses_it_alone(sim):
    sim.fault("refuse", code=84061, scope={"target": CUSTOMERS[1]})
    assert [line["code"] for line in lines(group_message(sim))] == [0, 84061, 0]
    assert sim.targets() == [CUSTOMERS[0], CUSTOMERS[2]]


def test_fault_by_any_target_counts_and_draws_each(make_sim):
    sim = make_sim(seed=3, account_per_min=None)
    sim.fault("refuse", scope={"target": "*"}, count=2)
    assert [line["code"] for line in lines(group_message(sim))] == [40003, 40003, 0]
    sim.fault("refuse", scope={"target": "*"}, probability=0.5)
    codes = [line["code"] for line in lines(group_message(sim, *map(str, range(50))))]
    assert 10 < codes.count(40003) < 40
    assert sim.send().json()["code"] in (0, 40003)


def test_fault_without_target_refuses_the_whole(sim):
    sim.fault("refuse", code=45009, count=1)
    assert group_message(sim).json() == {"code": 45009, "msg": "接口调用超过限制", "data": None}
    assert sim.calls() == []
    assert len(lines(group_message(sim))) == 3


def test_fault_that_is_no_answer_hits_the_whole_call(sim):
    sim.fault("http_5xx_after_effect", scope={"target": CUSTOMERS[1]}, count=1)
    assert group_message(sim).status_code == 500
    assert sim.targets() == list(CUSTOMERS)


def test_missing_result_took_effect_without_a_word(sim):
    sim.fault("missing_result", scope={"target": CUSTOMERS[0]})
    assert [line["toId"] for line in lines(group_message(sim))] == list(CUSTOMERS[1:])
    assert sim.targets() == list(CUSTOMERS)
    sim.fault("missing_result")
    assert lines(group_message(sim)) == []
    assert sim.send(CUSTOMERS[0]).json()["data"]["isSendSuccess"] == 1


def test_refused_targets_need_no_room(make_sim):
    sim = make_sim(account_per_min=2)
    sim.fault("refuse", scope={"target": CUSTOMERS[0]})
    assert [line["code"] for line in lines(group_message(sim))] == [40003, 0, 0]
    sim.fault("refuse", scope={"target": "*"})
    assert {line["code"] for line in lines(group_message(sim))} == {40003}


def test_echo_of_several_comes_for_each_and_may_be_lost_for_one(sim, listener):
    sim.post("/_sim/callback", {"url": listener.url})
    sim.fault("lost_callback", scope={"target": CUSTOMERS[0]})
    told = lines(group_message(sim))
    eventually(lambda: len(listener.events()) == 2)
    assert [(e["msgData"]["toId"], e["msgUniqueIdentifier"]) for e in listener.events()] == [
        (line["toId"], line["msgUniqueIdentifier"]) for line in told[1:]
    ]


# --- the adapter --------------------------------------------------------------------------------

GATEWAY = WecomApiGateway()


def carry(sim, call: CallSpec, dialect: str, **options):
    config = GatewayConfig("wecomapi", sim.url, dialect, "", {"multi_target": True, **options})
    request = GATEWAY.build(config, call)
    answer = sim.session.request(
        request.method, request.url, data=request.body, headers=request.headers, timeout=10
    )
    return GATEWAY.parse(config, call, answer.status_code, answer.headers, answer.content)


def send_call(*targets: str) -> CallSpec:
    specs = tuple(TargetSpec(target, "你好 “100%” \n🎉") for target in targets)
    return CallSpec("req-1", GUID, Operation.SEND_TEXT, specs)


def tag_call(remove: bool) -> CallSpec:
    labels = [(str(number), "9") for number in range(3)]
    specs = tuple(
        TargetSpec(target, remove_tags=tags) if remove else TargetSpec(target, tags=tags)
        for target, tags in zip(CUSTOMERS, labels, strict=True)
    )
    return CallSpec("req-1", GUID, Operation.TAG_CUSTOMERS, specs)


CALLS = [send_call(*CUSTOMERS), send_call(*ROOMS), tag_call(False), tag_call(True)]


@pytest.mark.parametrize("dialect", ["path", "method"])
@pytest.mark.parametrize("call", CALLS, ids=["customers", "groups", "add tags", "remove tags"])
def test_adapter_and_simulator_understand_each_other_in_calls_of_several(sim, dialect, call):
    outcomes = carry(sim, call, dialect)
    effects = sim.calls()
    assert outcomes == [Accepted(effect["msg_id"]) for effect in effects]
    assert [effect["target"] for effect in effects] == [spec.target for spec in call.targets]
    assert {effect["request_id"] for effect in effects} == {"req-1"}
    for spec, effect in zip(call.targets, effects, strict=True):
        assert tuple(effect["tags"]) == spec.tags + spec.remove_tags
        if spec.content:
            assert effect["content"] == spec.content
    sim.fault("refuse", code=84061, scope={"target": call.targets[0].target}, count=1)
    first, *others = carry(sim, call, dialect)
    assert first == Refused(Category.TARGET_INVALID, "84061", "失败")
    assert all(isinstance(outcome, Accepted) for outcome in others)
    sim.fault("missing_result", scope={"target": call.targets[-1].target}, count=1)
    *others, last = carry(sim, call, dialect)
    assert isinstance(last, Unknown)
    assert all(isinstance(outcome, Accepted) for outcome in others)


def test_adapter_reads_a_limit_reached_in_the_middle(make_sim):
    sim = make_sim(account_per_min=2)
    *sent, over = carry(sim, send_call(*CUSTOMERS), "path")
    assert all(isinstance(outcome, Accepted) for outcome in sent)
    assert isinstance(over, Refused)
    assert over.category is Category.RATE_LIMITED
    for outcome in carry(sim, send_call(*CUSTOMERS), "path"):
        assert isinstance(outcome, Refused)
        assert (outcome.category, outcome.retry_after) == (Category.RATE_LIMITED, 61.0)
    assert sim.targets() == list(CUSTOMERS[:2])


@pytest.mark.parametrize(
    ("kind", "more"),
    [("http_5xx_after_effect", {}), ("garbage_body", {}), ("huge_body", {"bytes": 2_000_000})],
)
def test_adapter_is_in_doubt_of_each_where_the_answer_was_lost(sim, kind, more):
    sim.fault(kind, **more)
    for outcome in carry(sim, send_call(*CUSTOMERS), "method"):
        assert isinstance(outcome, Unknown)
    assert sim.targets() == list(CUSTOMERS)


def test_fifty_targets_are_one_request(sim):
    targets = [str(7881300000001000 + number) for number in range(50)]
    outcomes = carry(sim, send_call(*targets), "path")
    assert all(isinstance(outcome, Accepted) for outcome in outcomes)
    assert sim.targets() == targets
    assert sim.get("/_sim/stats").json()["requests"] == 1
