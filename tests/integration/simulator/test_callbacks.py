"""Callbacks: the echo of what was sent, lost, late, repeated."""

from __future__ import annotations

import time

import pytest

from .conftest import GUID, TARGET, eventually


def test_echo_matches_the_answer(sim, listener):
    sim.post("/_sim/callback", {"url": listener.url})
    data = sim.send().json()["data"]
    (event,) = eventually(listener.events)
    assert event["cmd"] == 15000
    assert event["guid"] == event["senderId"] == GUID
    assert event["msgServerId"] == data["msgServerId"]
    assert event["msgUniqueIdentifier"] == data["msgUniqueIdentifier"]
    assert event["msgData"] == {"content": "你好", "toId": TARGET}


def test_echo_goes_to_the_accounts_own_address(sim, listener):
    sim.post("/_sim/callback", {"url": listener.url, "guid": "a"})
    sim.send("1", guid="b")
    sim.send("2", guid="a")
    (event,) = eventually(listener.events)
    assert event["msgData"]["toId"] == "2"
    assert sim.get("/_sim/stats").json()["callbacks"]["queued"] == 1


def test_refused_send_has_no_echo(sim, listener):
    sim.post("/_sim/callback", {"url": listener.url})
    sim.fault("refuse", count=1)
    sim.send("1")
    sim.send("2")
    (event,) = eventually(listener.events)
    assert event["msgData"]["toId"] == "2"


def test_send_in_doubt_has_its_echo_all_the_same(sim, listener):
    sim.post("/_sim/callback", {"url": listener.url})
    sim.fault("http_5xx_after_effect")
    sim.send()
    assert len(eventually(listener.events)) == 1


def test_lost_callback_never_comes(sim, listener):
    sim.post("/_sim/callback", {"url": listener.url})
    sim.fault("lost_callback", count=1)
    sim.send("1")
    sim.send("2")
    eventually(listener.events)
    assert [event["msgData"]["toId"] for event in listener.events()] == ["2"]
    assert sim.get("/_sim/stats").json()["callbacks"]["lost"] == 1


def test_late_callback_comes_late(sim, listener):
    sim.post("/_sim/callback", {"url": listener.url})
    sim.fault("late_callback", seconds=1, count=1)
    begin = time.monotonic()
    sim.send("late")
    sim.send("soon")
    eventually(lambda: len(listener.events()) == 2)
    assert time.monotonic() - begin >= 1
    assert [event["msgData"]["toId"] for event in listener.events()] == ["soon", "late"]


def test_unanswered_callback_is_repeated(sim, listener):
    listener.statuses.append(500)
    sim.post("/_sim/callback", {"url": listener.url})
    sim.send()
    eventually(lambda: len(listener.bodies) == 2)
    assert listener.bodies[0] == listener.bodies[1]
    eventually(lambda: sim.get("/_sim/stats").json()["callbacks"]["sent"] == 1)


def test_unreachable_listener_holds_nothing_up(sim):
    sim.post("/_sim/callback", {"url": "http://127.0.0.1:9/"})
    assert [sim.send(str(n)).json()["code"] for n in range(30)] == [0] * 30


def test_callback_address_can_be_taken_back(sim, listener):
    sim.post("/_sim/callback", {"url": listener.url})
    assert sim.post("/_sim/callback", {"url": None}).json() == {}
    sim.send()
    assert sim.get("/_sim/stats").json()["callbacks"]["queued"] == 0


@pytest.mark.parametrize("body", [{"url": "x"}, {"url": 5}, {"url": None, "guid": 1}, {"urls": 1}])
def test_malformed_callback_address_is_refused(sim, body):
    answer = sim.post("/_sim/callback", body)
    assert answer.status_code == 400
    assert answer.json()["error"]
