"""Rate limits: a sliding 60 s window per account and per address."""

from __future__ import annotations

import pytest

from .conftest import GUID


def codes(sim, count: int, **more) -> list[int]:
    return [sim.send(str(number), **more).status_code for number in range(count)]


def test_account_limit_refuses_the_next_and_says_when(make_sim):
    sim = make_sim(account_per_min=3)
    assert codes(sim, 3) == [200] * 3
    sim.now[0] += 20
    refused = sim.send()
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) == 41
    assert sim.send(guid="other").status_code == 200
    assert len(sim.calls()) == 4


def test_account_window_slides(make_sim):
    sim = make_sim(account_per_min=2)
    assert codes(sim, 1) == [200]
    sim.now[0] += 30
    assert codes(sim, 2) == [200, 429]
    sim.now[0] += 29.9
    assert codes(sim, 1) == [429]
    sim.now[0] += 0.1
    assert codes(sim, 2) == [200, 429]
    stats = sim.get("/_sim/stats").json()["accounts"][GUID]
    assert stats == {"total": 3, "refused": 3, "window": 2, "window_max": 2}


def test_ip_limit_counts_all_accounts(make_sim):
    sim = make_sim(ip_per_min=2)
    assert [sim.send(guid=str(n)).status_code for n in range(3)] == [200, 200, 429]


@pytest.mark.parametrize(("refusal", "code"), [("http_429", 45009), ("45033", 45033)])
def test_call_of_several_targets_reaches_the_limit_in_its_middle(make_sim, refusal, code):
    sim = make_sim(account_per_min=3, refusal=refusal)
    body = {"guid": GUID, "toIdList": ["1", "2"], "msgList": [{"msgData": "x"}]}
    answers = [sim.post("/msg/sendGroupMsg", body).json() for _ in range(2)]
    told = [[line["code"] for line in answer["data"]["results"]] for answer in answers]
    assert told == [[0, 0], [0, code]]
    assert sim.targets() == ["1", "2", "1"]
    third = sim.post("/msg/sendGroupMsg", body)
    assert third.status_code == (429 if refusal == "http_429" else 200)
    assert third.json()["code"] == (429 if refusal == "http_429" else code)
    stats = sim.get("/_sim/stats").json()["accounts"][GUID]
    assert (stats["total"], stats["window_max"], stats["refused"]) == (3, 3, 2)


def test_ip_limit_cuts_a_call_of_several_too(make_sim):
    sim = make_sim(ip_per_min=1)
    body = {"guid": GUID, "toIdList": ["1", "2"], "msgList": [{"msgData": "x"}]}
    lines = sim.post("/msg/sendGroupMsg", body).json()["data"]["results"]
    assert [line["code"] for line in lines] == [0, 45009]
    assert sim.targets() == ["1"]


def test_refusal_may_be_a_code(make_sim):
    sim = make_sim(account_per_min=1, refusal="45009")
    sim.send()
    answer = sim.send()
    assert (answer.status_code, answer.json()["code"]) == (200, 45009)


def test_no_limits_still_counts(make_sim):
    sim = make_sim(account_per_min=None, ip_per_min=None)
    assert set(codes(sim, 100)) == {200}
    assert sim.get("/_sim/stats").json()["accounts"][GUID]["window_max"] == 100


def test_limits_change_while_running(sim):
    assert sim.get("/_sim/limits").json() == {
        "account_per_min": 60,
        "ip_per_min": 6000,
        "refusal": "http_429",
    }
    sim.post("/_sim/limits", {"account_per_min": 1, "refusal": "45009"})
    assert [sim.send().json()["code"] for _ in range(2)] == [0, 45009]
    sim.post("/_sim/limits", {"account_per_min": None})
    assert sim.send().json()["code"] == 0


@pytest.mark.parametrize(
    "body",
    [
        {"account_per_min": 0},
        {"account_per_min": "60"},
        {"ip_per_min": True},
        {"refusal": "503x"},
        {"per_min": 1},
        [],
    ],
)
def test_malformed_limits_are_refused_and_change_nothing(sim, body):
    before = sim.get("/_sim/limits").json()
    answer = sim.post("/_sim/limits", body)
    assert answer.status_code == 400
    assert answer.json()["error"]
    assert sim.get("/_sim/limits").json() == before
