"""An account's login given back, and the switch, by service and by command."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from batches.domain.errors import InvalidInputError, NotAllowedError
from batches.models import Account, Event, Job, Shard
from batches.services.accounts import restore_account, set_account_active
from batches.store.trips import lose_credential
from tests.factories import ShardSpec, make_account, make_gateway, make_job, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def lanes(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """One entry per call for lanes."""
    calls: list[bool] = []
    monkeypatch.setattr("batches.services.account_switch.wake_lanes", lambda: calls.append(True))
    return calls


def lost(account: Account, **columns: Any) -> Job:
    """A job with a shard of this account among three, stopped as a lane would stop it."""
    job = make_job(
        shards=[
            ShardSpec(pending=2, account=account),
            ShardSpec(pending=1),
            ShardSpec(pending=1, account=account, status="paused", reason="operator"),
        ],
        **columns,
    )
    lose_credential(account.pk, note="40014 session expired")
    return job


def states(job: Job) -> list[tuple[str, str]]:
    return list(job.shards.order_by("ordinal").values_list("status", "reason"))


def test_restore_takes_up_the_accounts_shards_in_every_job(
    lanes: list[bool], django_capture_on_commit_callbacks: Any
) -> None:
    account = make_account()
    jobs = [lost(account), lost(account)]
    other = lost(make_account())
    Shard.objects.filter(reason="credential").update(bad_streak=4)
    actor = make_user("operate_job", first_name="王芳")
    with django_capture_on_commit_callbacks(execute=True):
        done = restore_account(account_id=account.pk, actor=actor, reason="已重新扫码")
    assert (done.shards, done.changed, done.account.health) == (2, True, "ok")
    assert done.account.health_note == ""
    for job in jobs:
        assert states(job) == [("running", ""), ("running", ""), ("paused", "operator")]
        assert job.shards.get(ordinal=1).bad_streak == 4, "half-open"
        assert Job.objects.get(pk=job.pk).version == job.version + 1
        event = Event.objects.get(job=job, kind="shard.resumed")
        assert (event.actor, event.reason, event.shard_ordinal) == (actor, "已重新扫码", 1)
        assert event.data["before"] == {"status": "paused", "reason": "credential"}
    assert states(other)[0] == ("paused", "credential")
    event = Event.objects.get(account=account, kind="account.credential_restored")
    assert (event.actor_name, event.data) == ("王芳", {"shards": 2})
    assert lanes == [True]


@pytest.mark.parametrize("status", ["paused", "pausing", "verifying", "terminated", "awaiting"])
def test_restore_leaves_the_status_of_its_jobs_alone(status: str) -> None:
    account = make_account()
    job = lost(account)
    Job.objects.filter(pk=job.pk).update(status=status)
    restore_account(account_id=account.pk, actor=None)
    assert Job.objects.get(pk=job.pk).status == status
    assert states(job)[0] == ("running", "")


def test_restore_of_a_well_account_changes_and_records_nothing(
    lanes: list[bool], django_capture_on_commit_callbacks: Any
) -> None:
    account = make_account()
    lost(account)
    restore_account(account_id=account.pk, actor=None)
    before = Event.objects.count()
    with django_capture_on_commit_callbacks(execute=True):
        again = restore_account(account_id=account.pk, actor=None)
    assert (again.shards, again.changed) == (0, False)
    assert Event.objects.count() == before
    assert lanes == []


def test_restore_of_an_account_without_work_makes_it_well() -> None:
    account = make_account(health="credential", health_note="40014")
    done = restore_account(account_id=account.pk, actor=None)
    assert (done.account.health, done.shards, done.changed) == ("ok", 0, True)


def test_restored_account_that_is_not_well_stops_again() -> None:
    account = make_account()
    job = lost(account)
    restore_account(account_id=account.pk, actor=None)
    assert lose_credential(account.pk, note="40014") == 1
    assert states(job)[0] == ("paused", "credential")


def test_restore_without_the_permission_is_not_allowed() -> None:
    account = make_account(health="credential")
    with pytest.raises(NotAllowedError):
        restore_account(account_id=account.pk, actor=make_user("approve_job"))
    account.refresh_from_db()
    assert account.health == "credential"


def test_restore_of_an_unknown_account_says_so() -> None:
    with pytest.raises(InvalidInputError, match="没有编号为 987654321 的账号"):
        restore_account(account_id=987654321, actor=None)


def test_switch_off_needs_a_reason_and_on_wakes_lanes(
    lanes: list[bool], django_capture_on_commit_callbacks: Any
) -> None:
    account = make_account()
    with pytest.raises(InvalidInputError, match="原因"):
        set_account_active(account_id=account.pk, actor=None, active=False)
    with django_capture_on_commit_callbacks(execute=True):
        assert not set_account_active(
            account_id=account.pk, actor=None, active=False, reason="离职"
        ).is_active
        assert lanes == []
        assert set_account_active(account_id=account.pk, actor=None, active=True).is_active
        set_account_active(account_id=account.pk, actor=None, active=True)
    assert lanes == [True]
    kinds = Event.objects.filter(account=account).order_by("id").values_list("kind", flat=True)
    assert list(kinds) == ["account.disabled", "account.enabled"]


def test_switch_by_an_operator_is_not_allowed() -> None:
    with pytest.raises(NotAllowedError):
        set_account_active(
            account_id=make_account().pk, actor=make_user("operate_job"), active=True
        )


# --- control_account ---


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[Any, int]:
    """(JSON, exit code)."""
    capsys.readouterr()
    code = 0
    try:
        call_command("control_account", *map(str, words), "--json")
    except SystemExit as stop:
        code = int(str(stop.code))
    return json.loads(capsys.readouterr().out), code


def test_control_account_restores_and_prints(capsys: pytest.CaptureFixture[str]) -> None:
    account = make_account(guid="kefu-1", name="客服一号")
    job = lost(account)
    told, code = run(capsys, "kefu-1", "restore", "--reason", "扫码")
    assert code == 0
    assert told == {
        "guid": "kefu-1",
        "gateway_url": account.gateway.base_url,
        "name": "客服一号",
        "is_active": True,
        "health": "ok",
        "changed": True,
        "resumed_shards": 1,
    }
    assert states(job)[0] == ("running", "")
    again, code = run(capsys, "kefu-1", "restore")
    assert (code, again["changed"]) == (0, False)


def test_control_account_switches_off_and_on(capsys: pytest.CaptureFixture[str]) -> None:
    make_account(guid="kefu-1")
    told, code = run(capsys, "kefu-1", "disable", "--reason", "离职")
    assert (code, told["is_active"], told["changed"]) == (0, False, True)
    told, code = run(capsys, "kefu-1", "enable")
    assert (code, told["is_active"], told["changed"]) == (0, True, True)
    told, code = run(capsys, "kefu-1", "enable")
    assert (code, told["is_active"], told["changed"]) == (0, True, False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["kefu-9", "restore"], "没有标识为“kefu-9”的账号"),
        (["kefu-1", "restore"], "多个网关"),
        (["kefu-2", "disable"], "原因"),
    ],
)
def test_control_account_with_bad_input_exits_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for gateway in (make_gateway(), make_gateway()):
        make_account(guid="kefu-1", gateway=gateway)
    make_account(guid="kefu-2")
    told, code = run(capsys, *words)
    assert (code, told["code"]) == (2, "invalid_input")
    assert message in told["error"]


def test_control_account_finds_one_of_two_by_its_gateway(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second = make_gateway(), make_gateway()
    make_account(guid="kefu-1", gateway=first)
    account = make_account(guid="kefu-1", gateway=second, health="credential")
    told, code = run(capsys, "kefu-1", "restore", "--gateway", f"{second.base_url}/")
    assert (code, told["gateway_url"]) == (0, second.base_url)
    account.refresh_from_db()
    assert account.health == "ok"


def test_control_account_without_json_prints_for_people(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lost(make_account(guid="kefu-1", name="客服一号"))
    call_command("control_account", "kefu-1", "restore")
    assert "账号 客服一号（kefu-1）：启用，正常，1 个分片继续" in capsys.readouterr().out
    with pytest.raises(CommandError, match="没有标识为"):
        call_command("control_account", "nobody", "enable")
