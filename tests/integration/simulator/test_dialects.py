"""Both dialects over real HTTP: what takes effect, what is refused, what the adapter reads."""

from __future__ import annotations

import pytest

from batches.domain.categories import Category
from batches.domain.outcomes import Accepted, Refused
from batches.gateways.base import CallSpec, GatewayConfig, Operation, TargetSpec
from batches.gateways.wecomapi import WecomApiGateway

from .conftest import GUID, TARGET


def test_send_text_path_dialect_takes_effect_once(sim):
    answer = sim.send(headers={"X-Request-Id": "call-7"}).json()
    assert answer["code"] == 0
    assert answer["data"]["isSendSuccess"] == 1
    (call,) = sim.calls()
    assert call == {
        "seq": 1,
        "ts": sim.now[0],
        "guid": GUID,
        "operation": "send_text",
        "target": TARGET,
        "content": "你好",
        "request_id": "call-7",
        "msg_id": answer["data"]["msgUniqueIdentifier"],
        "server_id": str(answer["data"]["msgServerId"]),
        "tags": [],
    }


@pytest.mark.parametrize("path", ["/wecom/finder/api", "/qiwe/api/qw/doApi"])
def test_send_text_method_dialect_takes_effect(sim, path):
    params = {"guid": GUID, "toId": TARGET, "content": "x", "requestId": "r1"}
    answer = sim.post(path, {"method": "/msg/sendText", "params": params})
    assert answer.json()["code"] == 0
    (call,) = sim.calls()
    assert (call["target"], call["request_id"]) == (TARGET, "r1")


def test_set_welcome_and_tags_take_effect(sim):
    sim.post("/room/setWelcome", {"guid": GUID, "roomId": "10888000000000001", "content": "欢迎"})
    edit = [{"userId": TARGET, "labelIdList": ["1", "2"]}]
    sim.post("/label/contactEditLabel", {"guid": GUID, "opType": 2, "paramList": edit})
    welcome, tags = sim.calls()
    assert (welcome["operation"], welcome["content"]) == ("set_group_welcome", "欢迎")
    assert (tags["operation"], tags["content"], tags["tags"]) == (
        "tag_customers",
        "remove",
        ["1", "2"],
    )


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/message/sendText", {"guid": GUID, "toId": 7881300000000000, "content": "x"}, 40003),
        ("/message/sendText", {"guid": GUID, "toId": "7.88130E+15", "content": "x"}, 40003),
        ("/message/sendText", {"guid": GUID, "toId": "", "content": "x"}, 40003),
        ("/message/sendText", {"guid": GUID, "toId": "1", "content": " "}, 44004),
        ("/message/sendText", {"guid": GUID, "toId": "1", "content": "长" * 1334}, 45002),
        ("/message/sendText", {"guid": 5, "toId": "1", "content": "x"}, 40058),
        ("/message/sendText", [], 40058),
        ("/wecom/finder/api", {"method": "/msg/none", "params": {"guid": GUID}}, 40058),
        ("/wecom/finder/api", {"method": "/msg/sendText"}, 40058),
        (
            "/msg/sendGroupMsg",
            {"guid": GUID, "toIdList": [str(n) for n in range(51)], "msgList": [{"msgData": "x"}]},
            40032,
        ),
        (
            "/label/contactEditLabel",
            {"guid": GUID, "opType": 1, "paramList": [{"userId": "1", "labelIdList": [1]}]},
            40068,
        ),
        ("/label/contactEditLabel", {"guid": GUID, "opType": 3, "paramList": [{}]}, 40058),
        (
            "/label/contactEditLabel",
            {
                "guid": GUID,
                "opType": 1,
                "paramList": [
                    {"userId": "1", "labelIdList": [str(n) for n in range(20)]},
                    {"userId": "2", "labelIdList": ["20"]},
                ],
            },
            40068,
        ),
        (
            "/msg/sendGroupMsg",
            {"guid": GUID, "toIdList": ["1"], "msgList": [{"msgData": "x"}], "sendType": 2},
            40058,
        ),
    ],
)
def test_malformed_call_is_refused_without_effect(sim, path, body, code):
    answer = sim.post(path, body)
    assert (answer.status_code, answer.json()["code"]) == (200, code)
    assert sim.calls() == []


def test_other_requests_are_refused_by_http(sim):
    assert sim.get("/message/sendText").status_code == 405
    assert sim.post("/message/sendtext", {}).status_code == 404
    answer = sim.session.post(f"{sim.url}/message/sendText", data=b"{", timeout=10)
    assert answer.status_code == 400
    assert sim.calls() == []


def test_token_is_demanded_in_the_dialects_own_header(make_sim):
    sim = make_sim(token="T0")
    params = {"guid": GUID, "toId": TARGET, "content": "x"}
    body = {"method": "/msg/sendText", "params": params}
    wrong = sim.post("/qiwe/api/qw/doApi", body, headers={"WECOM-TOKEN": "T0"})
    right = sim.post("/qiwe/api/qw/doApi", body, headers={"X-QIWEI-TOKEN": "T0"})
    assert (wrong.status_code, right.status_code) == (401, 200)
    assert len(sim.calls()) == 1


def test_reads_answer_without_effect(sim):
    body = {"guid": GUID}
    assert sim.post("/login/checkLogin", body).json()["data"] == {"userOnlineStatus": 1}
    assert len(sim.post("/label/syncLabelList", body).json()["data"]["labelList"]) == 8
    rooms = sim.post("/room/getRoomList", body | {"nextStartIndex": 10}).json()["data"]
    assert (len(rooms["roomList"]), rooms["hasMore"]) == (10, 0)
    assert sim.calls() == []


def test_contact_list_pages_to_its_end_with_distinct_ids(sim):
    seen, at, more = [], 0, 1
    while more:
        body = {"guid": GUID, "currentSeq": at, "limit": 70}
        data = sim.post("/contact/getWxContactList", body).json()["data"]
        seen += [contact["userId"] for contact in data["contactList"]]
        at, more = data["nextSeq"], data["hasMore"]
    assert len(seen) == len(set(seen)) == 200
    assert all(len(user) == 16 and user.startswith("788") for user in seen)


def test_calls_since_gives_only_later_ones(sim):
    for number in range(5):
        sim.send(str(number))
    assert [call["seq"] for call in sim.calls("?since=3")] == [4, 5]
    assert sim.calls("?since=5") == []
    assert sim.get("/_sim/calls?since=x").status_code == 400


def test_stats_and_reset(sim):
    sim.send()
    sim.send(guid="other")
    stats = sim.get("/_sim/stats").json()
    assert stats["total"] == 2
    assert stats["operations"] == {"send_text": 2}
    assert stats["accounts"][GUID] == {"total": 1, "refused": 0, "window": 1, "window_max": 1}
    assert stats["ips"]["127.0.0.1"]["window_max"] == 2
    sim.fault("refuse")
    assert sim.post("/_sim/reset", {}).json() == {"reset": True}
    assert sim.calls() == []
    assert sim.get("/_sim/faults").json() == []
    assert sim.send().json()["data"]["seq"] == 3  # numbers, and so ids, never come again


@pytest.mark.parametrize("dialect", ["path", "method"])
@pytest.mark.parametrize(
    ("operation", "target"),
    [
        (Operation.SEND_TEXT, TargetSpec(TARGET, "你好 “100%” \n🎉")),
        (Operation.SET_GROUP_WELCOME, TargetSpec("10888000000000001", "欢迎")),
        (Operation.TAG_CUSTOMERS, TargetSpec(TARGET, tags=("1", "2"))),
        (Operation.TAG_CUSTOMERS, TargetSpec(TARGET, remove_tags=("1",))),
    ],
)
def test_adapter_and_simulator_understand_each_other(make_sim, dialect, operation, target):
    sim = make_sim(token="T0")
    gateway = WecomApiGateway()
    config = GatewayConfig("wecomapi", sim.url, dialect, "T0")
    call = CallSpec("req-1", GUID, operation, (target,))

    def carry():
        request = gateway.build(config, call)
        answer = sim.session.request(
            request.method, request.url, data=request.body, headers=request.headers, timeout=10
        )
        return gateway.parse(config, call, answer.status_code, answer.headers, answer.content)

    (outcome,) = carry()
    (effect,) = sim.calls()
    assert outcome == Accepted(effect["msg_id"])
    assert (effect["target"], effect["guid"], effect["request_id"]) == (
        target.target,
        GUID,
        "req-1",
    )
    assert effect["operation"] == operation
    if target.content:
        assert effect["content"] == target.content
    else:
        assert tuple(effect["tags"]) == target.tags + target.remove_tags
    sim.fault("refuse", code=84061, count=1)
    assert carry()[0].category is Category.TARGET_INVALID
    sim.fault("http_429", retry_after=7, count=1)
    (outcome,) = carry()
    assert isinstance(outcome, Refused)
    assert (outcome.category, outcome.retry_after) == (Category.RATE_LIMITED, 7.0)
    assert len(sim.calls()) == 1
