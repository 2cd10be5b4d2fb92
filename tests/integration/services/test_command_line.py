"""What a command does is told apart from what the system does by itself."""

from __future__ import annotations

import io
import os
import pwd
import socket
from pathlib import Path

import pytest
from django.core.management import call_command

from batches.domain.actors import SHELL_SIGN, Shell, actor_words
from batches.management.commands import _actor
from batches.models import Account, Event, Job
from batches.store.events import actor_name
from tests.factories import ShardSpec, items_of, make_account, make_gateway, make_job, make_user

pytestmark = pytest.mark.django_db


def _me() -> str:
    return f"cli:{pwd.getpwuid(os.getuid()).pw_name}@{socket.gethostname()}"


def _called(*words: str) -> None:
    call_command(*words, stdout=io.StringIO(), stderr=io.StringIO())


def _actors() -> dict[str, str]:
    assert not Event.objects.exclude(actor=None).exists()
    return dict(Event.objects.values_list("kind", "actor_name"))


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["pause"], "job.paused"),
        (["cancel", "--reason", "错"], "job.cancelling"),
        (["terminate", "--reason", "错"], "job.terminating"),
        (["retry_failed"], "job.retried"),
        (["raise_budget", "--to", "20", "--reason", "好"], "job.budget_raised"),
        (["set_rate", "--to", "5"], "job.rate_set"),
        (["set_hours", "--window", "09:00-18:00"], "job.hours_set"),
        (["set_breaker", "--breaker-streak", "3"], "job.breaker_set"),
        (["set_priority", "--to", "3"], "job.priority_set"),
    ],
)
def test_verb_at_a_command_line_names_it(words: list[str], kind: str) -> None:
    job = make_job(budget_limit=10, shards=[ShardSpec(pending=2, failed=1)])
    _called("control_job", str(job.pk), *words)
    assert _actors()[kind] == _me()


@pytest.mark.django_db(transaction=True)
def test_what_follows_by_itself_from_a_command_is_the_systems() -> None:
    job = make_job(shards=[ShardSpec(pending=2)])
    _called("control_job", str(job.pk), "cancel", "--reason", "错")
    assert _actors() == {"job.cancelling": _me(), "job.cancelled": ""}


def test_account_switched_and_restored_at_a_command_line_names_it() -> None:
    account = make_account(guid="acc-1", health="credential")
    _called("control_account", account.guid, "disable", "--reason", "换号")
    _called("control_account", account.guid, "enable")
    _called("control_account", account.guid, "restore")
    assert set(_actors()) == {
        "account.disabled",
        "account.enabled",
        "account.credential_restored",
    }
    assert set(_actors().values()) == {_me()}


def test_job_made_and_started_at_a_command_line_names_it(tmp_path: Path) -> None:
    account = make_account(guid="acc-1")
    file = tmp_path / "a.csv"
    file.write_text(f"account,target\n{account.guid},7881300000000001\n", encoding="utf-8")
    _called(
        "create_job",
        "--action",
        "send_text",
        "--csv",
        str(file),
        "--param",
        "content=好",
        "--start",
    )
    found = _actors()
    assert (found["job.created"], found["job.confirmed"]) == (_me(), _me())
    assert found["job.loaded"] == ""
    assert Job.objects.get().created_by is None


def test_accounts_loaded_at_a_command_line_tell_each_change(tmp_path: Path) -> None:
    gateway = make_gateway(base_url="http://10.0.0.1:9100")
    old = make_account(gateway=gateway, guid="g1", total_rate_per_min=60)
    same = make_account(gateway=gateway, guid="g2", total_rate_per_min=600)
    file = tmp_path / "a.csv"
    file.write_text(
        "gateway_url,guid,total_rate_per_min\n"
        "http://10.0.0.1:9100,g1,600\nhttp://10.0.0.1:9100,g2,600\n"
        "http://10.0.0.1:9100,g3,30\nhttp://10.0.0.2:9100,g1,30\n",
        encoding="utf-8",
    )
    _called("load_accounts", str(file))
    assert set(_actors().values()) == {_me()}
    lines = Event.objects.all()
    changed = lines.get(kind="account.changed")
    assert changed.account == old
    assert changed.data == {
        "before": {"total_rate_per_min": 60},
        "after": {"total_rate_per_min": 600},
    }
    assert not lines.filter(account=same).exists()
    added = {line.account_id: line.data["after"] for line in lines.filter(kind="account.added")}
    assert set(added) == set(
        Account.objects.exclude(pk__in=[old.pk, same.pk]).values_list("pk", flat=True)
    )
    assert {one["total_rate_per_min"] for one in added.values()} == {30}
    assert lines.get(kind="gateway.added").data["object"]["name"] == "http://10.0.0.2:9100"
    assert lines.filter(kind="accounts.loaded").count() == 2


def test_items_of_a_retry_at_a_command_line_name_it() -> None:
    job = make_job(shards=[ShardSpec(failed=1)])
    items_of(job, "failed")[0].__class__.objects.filter(job_id=job.pk).update(
        category="not_delivered"
    )
    _called("control_job", str(job.pk), "retry_failed", "--category", "not_delivered")
    assert _actors()["item.retried"] == _me()


def test_name_of_a_command_line_fits_its_column_and_is_worded_by_the_reader() -> None:
    long = Shell(user="u" * 100, host="h" * 100).stored_name
    assert len(long) == 150
    assert long.startswith(SHELL_SIGN)
    assert actor_words("cli:ops@host-1", str) == "命令行 ops@host-1"
    assert (actor_words("", str), actor_words("王芳", str)) == ("系统", "王芳")


def test_person_who_is_called_like_a_command_line_is_named_by_their_sign_in() -> None:
    person = make_user(username="clerk", first_name="cli:root@host-1")
    assert actor_name(person) == "clerk"


def test_user_without_a_name_on_the_machine_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_actor.os, "getuid", lambda: 4_000_000)
    assert _actor.shell().user == "4000000"
