"""A test send: allowed, checked, limited, sent once, and told as it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO

import pytest
import redis
from django.core.management import CommandError, call_command
from django.db import DatabaseError

from batches.domain.actors import SHELL_SIGN
from batches.domain.errors import InvalidInputError, NotAllowedError, WrongStateError
from batches.engine.transport import Answer
from batches.gates.script import SINCE, TAKE, GateKeys, take_call
from batches.models import Account, Event
from batches.services.test_send import TestResult, send_test
from tests.factories import make_account, make_gateway, make_user
from tests.integration.gates.conftest import clock, gate_redis
from tests.integration.simulator.conftest import Sim, make_sim, sim

__all__ = ["gate_redis", "make_sim", "sim"]

pytestmark = pytest.mark.django_db

TARGET = "7881300000000001"
TOKEN = "s3cret-token"


@pytest.fixture
def account(sim: Sim, gate_redis: redis.Redis) -> Account:
    """An account of the simulator; its reserve lets one message go every tenth of a second."""
    gateway = make_gateway(base_url=sim.url, token=TOKEN, timeout_seconds=1)
    found = make_account(gateway=gateway, total_rate_per_min=660, online_reserve_per_min=600)
    call = take_call(GateKeys.of_account_online(found.pk), 0, rate_per_min=1)
    gate_redis.eval(TAKE.text, len(call.keys), *call.keys, *call.args(fresh=True))
    # the server has been up for an hour
    gate_redis.set(SINCE, clock(gate_redis) - 3_600_000_000)
    return found


def send(account: Account, *, target: str = TARGET, content: str = "你好") -> TestResult:
    return send_test(account_id=account.pk, target=target, content=content, actor=None)


def test_accepted_send_is_told_and_recorded(account: Account, sim: Sim) -> None:
    user = make_user("operate_job", first_name="小", last_name="王")
    result = send_test(
        account_id=account.pk, target=f" {TARGET} ", content="你好 {{世界}}", actor=user
    )
    assert result.outcome == "accepted"
    assert "网关已接受" in result.message
    [call] = sim.calls()
    assert (call["guid"], call["target"]) == (account.guid, TARGET)
    event = Event.objects.get()
    assert (event.kind, event.account_id, event.actor) == ("account.test_sent", account.pk, user)
    assert event.data["target"] == TARGET
    assert event.data["content"] == "你好 {世界}"
    assert event.data["outcome"] == "accepted"
    assert event.data["msg_id"]
    assert event.data["duration_ms"] == result.duration_ms


def test_person_without_the_permission_sends_nothing(account: Account, sim: Sim) -> None:
    user = make_user("cancel_job")
    with pytest.raises(NotAllowedError):
        send_test(account_id=account.pk, target=TARGET, content="你好", actor=user)
    assert sim.calls() == []


@pytest.mark.parametrize(
    ("target", "content", "message"),
    [
        ("", "你好", "ID 为空"),
        ("1.68885E+15", "你好", "科学计数法"),
        ("wmABCDEFGHIJKL", "你好", "官方接口的 ID"),
        (TARGET, "  ", "请填写参数"),
        (TARGET, "你" * 1334, "超过上限"),
        (TARGET, "你好 {姓名}", "测试发送没有名单，占位符 {姓名}"),
        (TARGET, "你好 {姓名", "大括号不成对"),
    ],
)
def test_input_that_cannot_be_sent_is_refused(
    account: Account, sim: Sim, target: str, content: str, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        send(account, target=target, content=content)
    assert sim.calls() == []
    assert Event.objects.count() == 0


def test_unknown_account_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="没有编号为 0 的账号"):
        send_test(account_id=0, target=TARGET, content="你好", actor=None)


def test_account_or_gateway_switched_off_is_refused(account: Account, sim: Sim) -> None:
    account.is_active = False
    account.save()
    with pytest.raises(WrongStateError, match="账号已停用"):
        send(account)
    account.is_active = True
    account.save()
    account.gateway.is_active = False
    account.gateway.save()
    with pytest.raises(WrongStateError, match="网关已停用"):
        send(account)
    assert sim.calls() == []


def test_account_without_a_reserve_is_told_what_to_set(account: Account, sim: Sim) -> None:
    account.online_reserve_per_min = 0
    account.save()
    result = send(account)
    assert result.outcome == "limited"
    assert "在线保留" in result.message
    assert sim.calls() == []


def test_reserve_used_up_tells_the_seconds_to_wait(account: Account, sim: Sim) -> None:
    account.online_reserve_per_min = 6
    account.save()
    assert send(account).outcome == "accepted"
    result = send(account)
    assert result.outcome == "limited"
    assert any(f"请 {n} 秒后再试" in result.message for n in (10, 11))
    assert len(sim.calls()) == 1
    assert Event.objects.count() == 1


def test_redis_away_sends_nothing(account: Account, sim: Sim, settings: object) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    result = send(account)
    assert result.outcome == "limited"
    assert "Redis 没有应答" in result.message
    assert sim.calls() == []


@pytest.mark.parametrize(
    ("fault", "outcome", "words", "category"),
    [
        ({"kind": "refuse", "code": 40003}, "refused", "目标无效", "target_invalid"),
        ({"kind": "hang"}, "unknown", "不确定是否送达，请勿直接重发", "timeout"),
        ({"kind": "reset_after_effect"}, "unknown", "不确定是否送达，请勿直接重发", "reset"),
        ({"kind": "http_5xx_after_effect"}, "unknown", "请勿直接重发", "server_error"),
    ],
)
def test_send_that_goes_wrong_is_told_as_it_was_and_never_repeated(
    account: Account,
    sim: Sim,
    fault: dict[str, object],
    outcome: str,
    words: str,
    category: str,
) -> None:
    sim.fault(fault.pop("kind"), **fault)
    result = send(account)
    assert result.outcome == outcome
    assert words in result.message
    assert len(sim.calls()) == (0 if outcome == "refused" else 1)
    [event] = Event.objects.all()
    assert (event.data["outcome"], event.data["category"]) == (outcome, category)


def test_gateway_that_is_not_there_is_not_sent(account: Account) -> None:
    account.gateway.base_url = "http://127.0.0.1:1"
    account.gateway.save()
    result = send(account)
    assert result.outcome == "not_sent"
    assert "没有发出：网关连不上" in result.message


def test_token_is_neither_shown_nor_recorded(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    echo = json.dumps({"code": 40001, "msg": f"bad token {TOKEN}"}).encode()
    monkeypatch.setattr("batches.services.test_send.post", lambda *_, **__: Answer(200, {}, echo))
    result = send(account)
    assert result.outcome == "refused"
    assert "bad token ***" in result.message
    assert TOKEN not in json.dumps(Event.objects.get().data)


def test_place_among_the_gateways_calls_is_handed_in(
    account: Account, gate_redis: redis.Redis
) -> None:
    account.gateway.max_concurrent = 1
    account.gateway.save()
    assert send(account).outcome == "accepted"
    assert gate_redis.zcard(GateKeys.of_gateway(account.gateway_id).calls) == 0


def test_place_is_handed_in_when_the_send_breaks(
    account: Account, gate_redis: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    account.gateway.max_concurrent = 1
    account.gateway.save()

    def broken(*_: object, **__: object) -> Answer:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr("batches.services.test_send.post", broken)
    with pytest.raises(RuntimeError):
        send(account)
    assert gate_redis.zcard(GateKeys.of_gateway(account.gateway_id).calls) == 0


def test_record_that_fails_does_not_hide_that_the_message_is_out(
    account: Account, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(**_: object) -> None:
        raise DatabaseError("gone")

    monkeypatch.setattr("batches.services.test_send.add_event", fail)
    assert send(account).outcome == "accepted"
    assert "not recorded" in caplog.text


# --- the command ---


def command(*args: str) -> tuple[int, str]:
    out = StringIO()
    try:
        call_command("send_test", *args, stdout=out, stderr=StringIO())
    except SystemExit as end:
        return int(end.code or 0), out.getvalue()
    except CommandError as error:
        return error.returncode, str(error)
    return 0, out.getvalue()


@pytest.fixture
def run(account: Account) -> Callable[..., tuple[int, str]]:
    def run(*more: str, guid: str = account.guid, to: str = TARGET) -> tuple[int, str]:
        return command("--guid", guid, "--to", to, "--content", "你好", *more)

    return run


def test_command_accepted_exits_0(run: Callable[..., tuple[int, str]]) -> None:
    code, out = run("--json")
    assert code == 0
    assert Event.objects.get(kind="account.test_sent").actor_name.startswith(SHELL_SIGN)
    assert json.loads(out)["outcome"] == "accepted"
    assert "网关已接受" in json.loads(out)["message"]


def test_command_refused_exits_3(run: Callable[..., tuple[int, str]], sim: Sim) -> None:
    sim.fault("refuse", code=40003)
    code, out = run()
    assert code == 3
    assert "目标无效" in out


@pytest.mark.parametrize("bad", [{"guid": "nobody"}, {"to": "1.5E+15"}])
def test_command_with_bad_input_exits_2(
    run: Callable[..., tuple[int, str]], bad: dict[str, str]
) -> None:
    assert run(**bad)[0] == 2
    code, out = run("--json", **bad)
    assert code == 2
    assert json.loads(out)["code"] == "invalid_input"


def test_command_with_an_ambiguous_account_asks_for_the_gateway(
    run: Callable[..., tuple[int, str]], account: Account
) -> None:
    make_account(guid=account.guid)
    code, out = run()
    assert code == 2
    assert account.gateway.base_url in out
    assert run("--gateway", account.gateway.base_url + "/")[0] == 0
