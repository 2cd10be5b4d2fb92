"""Each kind of fault as a client meets it, and whether it took effect."""

from __future__ import annotations

import socket
import time

import pytest
import requests

from .conftest import GUID, TARGET, eventually


@pytest.mark.parametrize(("code", "given"), [(40003, {}), (85002, {"code": 85002})])
def test_refuse_answers_the_code_without_effect(sim, code, given):
    sim.fault("refuse", **given)
    answer = sim.send()
    assert (answer.status_code, answer.json()["code"]) == (200, code)
    assert sim.calls() == []


def test_http_429_says_when_to_come_back_without_effect(sim):
    sim.fault("http_429", retry_after=12)
    answer = sim.send()
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "12")
    assert sim.calls() == []


def test_http_5xx_after_effect_took_effect(sim):
    sim.fault("http_5xx_after_effect", status=502, count=1)
    assert sim.send("1").status_code == 502
    assert sim.send("2").status_code == 200
    assert sim.targets() == ["1", "2"]


def test_http_5xx_without_effect_on_request(sim):
    sim.fault("http_5xx_after_effect", effect=False)
    assert sim.send().status_code == 500
    assert sim.calls() == []


def raw_send(sim, body: bytes = b'{"guid":"g","toId":"1","content":"x"}') -> socket.socket:
    host, _, port = sim.url.removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)), timeout=10)
    head = f"POST /message/sendText HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


@pytest.mark.parametrize(
    ("kind", "effects"), [("reset_before_effect", 0), ("reset_after_effect", 1)]
)
def test_reset_is_a_tcp_reset(sim, kind, effects):
    sim.fault(kind)
    with raw_send(sim) as connection, pytest.raises(ConnectionResetError):
        connection.recv(100)
    assert len(sim.calls()) == effects


@pytest.mark.parametrize("kind", ["reset_before_effect", "reset_after_effect"])
def test_server_goes_on_after_a_reset(sim, kind):
    sim.fault(kind, count=1)
    with pytest.raises(requests.ConnectionError):
        sim.send("1")
    assert sim.send("2").json()["code"] == 0


@pytest.mark.parametrize(("effect", "effects"), [(True, 1), (False, 0)])
def test_hang_never_answers(sim, effect, effects):
    sim.fault("hang", effect=effect)
    with raw_send(sim) as connection:
        connection.settimeout(0.5)
        with pytest.raises(TimeoutError):
            connection.recv(100)
        assert len(sim.calls()) == effects


def test_hang_ends_with_its_seconds(sim):
    sim.fault("hang", seconds=0.1)
    with raw_send(sim) as connection, pytest.raises(ConnectionResetError):
        connection.recv(100)


def test_garbage_body_took_effect(sim):
    sim.fault("garbage_body")
    answer = sim.send()
    assert answer.status_code == 200
    with pytest.raises(requests.JSONDecodeError):
        answer.json()
    assert sim.targets() == [TARGET]


def test_truncated_body_took_effect(sim):
    sim.fault("truncated_body")
    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        sim.send()
    assert sim.targets() == [TARGET]


def test_huge_body_is_as_long_as_asked(sim):
    sim.fault("huge_body", bytes=3_000_000)
    with sim.send(stream=True) as answer:
        assert sum(len(part) for part in answer.iter_content(65536)) >= 3_000_000
    assert sim.targets() == [TARGET]


def test_slow_drip_comes_byte_by_byte_and_whole(sim):
    sim.fault("slow_drip", seconds=0.3)
    begin = time.monotonic()
    assert sim.send().json()["data"]["isSendSuccess"] == 1
    assert time.monotonic() - begin >= 0.3


def test_latency_comes_after_the_effect(sim):
    sim.fault("latency", seconds=30)
    with raw_send(sim) as connection:
        eventually(sim.calls)
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(100)


def test_latency_goes_with_another_fault(sim):
    sim.fault("latency", seconds=0.2)
    sim.fault("refuse")
    begin = time.monotonic()
    assert sim.send().json()["code"] == 40003
    assert time.monotonic() - begin >= 0.2


def test_credential_expired_shows_in_login_state_until_deleted(sim, listener):
    sim.post("/_sim/callback", {"url": listener.url})
    sim.fault("credential_expired", scope={"guid": GUID})
    assert sim.send().json()["code"] == 11024
    assert sim.post("/login/checkLogin", {"guid": GUID}).json()["data"]["userOnlineStatus"] == 0
    assert sim.post("/contact/getWxContactList", {"guid": GUID}).json()["code"] == 11024
    assert sim.send(guid="other").json()["code"] == 0
    event = eventually(lambda: [e for e in listener.events() if e["cmd"] == 11016])[0]
    assert (event["guid"], event["msgData"]) == (GUID, {"code": 11024})
    assert sim.session.delete(f"{sim.url}/_sim/faults", timeout=10).json() == {"removed": 1}
    assert sim.send().json()["code"] == 0


@pytest.mark.parametrize(
    ("scope", "refused"),
    [
        ("all", [True, True, True]),
        ({"guid": "a"}, [True, True, False]),
        ({"guid": "a", "target": "1"}, [True, False, False]),
        ({"operation": "set_group_welcome"}, [False, False, False]),
    ],
)
def test_scope_limits_what_is_hit(sim, scope, refused):
    sim.fault("refuse", scope=scope)
    codes = [sim.send(t, guid=g).json()["code"] for g, t in (("a", "1"), ("a", "2"), ("b", "1"))]
    assert [code != 0 for code in codes] == refused


def test_count_is_used_up(sim):
    sim.fault("refuse", count=2)
    assert [sim.send(str(n)).json()["code"] for n in range(3)] == [40003, 40003, 0]
    (fault,) = sim.get("/_sim/faults").json()
    assert (fault["fired"], fault["count"]) == (2, 0)


def test_probability_is_repeatable_by_seed(make_sim):
    def run():
        sim = make_sim(seed=7)
        sim.fault("refuse", probability=0.5)
        return [sim.send(str(n)).json()["code"] for n in range(40)]

    first = run()
    assert first == run()
    assert 5 < first.count(0) < 35


def test_delete_one_fault_keeps_the_others(sim):
    sim.fault("refuse", code=1)
    sim.fault("refuse", code=2)
    sim.session.delete(f"{sim.url}/_sim/faults?id=1", timeout=10)
    assert sim.send().json()["code"] == 2


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ([], "JSON object"),
        ({}, "unknown kind None"),
        ({"kind": "explode"}, "reset_after_effect"),
        ({"kind": "refuse", "propability": 1}, "propability"),
        ({"kind": "refuse", "probability": 1.5}, "from 0 to 1"),
        ({"kind": "refuse", "probability": "1"}, "probability"),
        ({"kind": "refuse", "count": 0}, "count"),
        ({"kind": "refuse", "count": True}, "count"),
        ({"kind": "refuse", "code": "40003"}, "code"),
        ({"kind": "hang", "seconds": -1}, "seconds"),
        ({"kind": "hang", "effect": 1}, "effect"),
        ({"kind": "http_5xx_after_effect", "status": 404}, "status"),
        ({"kind": "refuse", "scope": "some"}, "scope"),
        ({"kind": "refuse", "scope": {}}, "scope"),
        ({"kind": "refuse", "scope": {"account": "1"}}, "scope"),
        ({"kind": "refuse", "scope": {"guid": 1}}, "scope"),
    ],
)
def test_malformed_fault_is_refused_with_the_reason(sim, body, said):
    answer = sim.post("/_sim/faults", body)
    assert answer.status_code == 400
    assert said in answer.json()["error"]
    assert sim.get("/_sim/faults").json() == []


def test_fault_that_is_no_json_is_refused(sim):
    answer = sim.session.post(f"{sim.url}/_sim/faults", data=b"{", timeout=10)
    assert (answer.status_code, answer.json()["error"]) == (400, "the body is not JSON")


def test_unknown_control_request_lists_the_known_ones(sim):
    answer = sim.get("/_sim/")
    assert answer.status_code == 404
    assert "GET /_sim/calls" in answer.json()["known"]
