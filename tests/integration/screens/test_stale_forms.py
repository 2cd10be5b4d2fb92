"""A form that was open while somebody else changed the row undoes nobody's change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse

from batches.models import Account, Event, Gateway
from batches.services.settings import change_account, change_gateway
from tests.factories import make_account, make_gateway, make_user

from .pages import form_of, text_of

pytestmark = pytest.mark.django_db


def _address(row: Any) -> str:
    meta = row._meta
    return reverse(f"admin:{meta.app_label}_{meta.model_name}_change", args=[row.pk])


def _elsewhere(account: Account, **changes: Any) -> None:
    wang = make_user("change_account", username="wang", first_name="王芳")
    change_account(account_id=account.pk, actor=wang, changes=changes)


def test_account_form_with_another_field_typed_keeps_a_rate_set_meanwhile(client: Client) -> None:
    account = make_account(total_rate_per_min=60)
    typed = form_of(client.get(_address(account)), name="新名")
    _elsewhere(account, total_rate_per_min=600)
    assert client.post(_address(account), typed).status_code == 302
    account.refresh_from_db()
    assert (account.name, account.total_rate_per_min) == ("新名", 600)
    told = Event.objects.filter(kind="account.changed").latest("id").data
    assert told["after"] == {"name": "新名"}


def test_account_form_with_the_same_field_typed_tells_both_values_and_asks_again(
    client: Client,
) -> None:
    account = make_account(total_rate_per_min=60)
    typed = form_of(client.get(_address(account)), total_rate_per_min="90", name="新名")
    _elsewhere(account, total_rate_per_min=600, max_inflight=2)
    refused = client.post(_address(account), typed)
    assert refused.status_code == 200
    said = text_of(refused)
    assert "王芳" in said
    assert "把这一项改为“600”，您填的是“90”" in said
    account.refresh_from_db()
    assert (account.name, account.total_rate_per_min, account.max_inflight) != ("新名", 90, 1)
    # what was not touched is shown as it is now; sent again, it is meant
    again = form_of(refused)
    assert (again["total_rate_per_min"], again["max_inflight"]) == (["90"], ["2"])
    assert client.post(_address(account), again).status_code == 302
    account.refresh_from_db()
    assert (account.name, account.total_rate_per_min, account.max_inflight) == ("新名", 90, 2)


def test_account_form_is_refused_again_if_it_changed_once_more(client: Client) -> None:
    account = make_account(total_rate_per_min=60)
    typed = form_of(client.get(_address(account)), total_rate_per_min="90")
    _elsewhere(account, total_rate_per_min=600)
    again = form_of(client.post(_address(account), typed))
    Account.objects.filter(pk=account.pk).update(total_rate_per_min=700)
    refused = client.post(_address(account), again)
    assert "把这一项改为“700”，您填的是“90”" in text_of(refused)


def test_account_form_with_a_faulty_field_still_tells_of_the_conflict_next_time(
    client: Client,
) -> None:
    account = make_account(total_rate_per_min=60)
    typed = form_of(client.get(_address(account)), total_rate_per_min="-")
    _elsewhere(account, total_rate_per_min=600)
    refused = client.post(_address(account), typed)
    again = form_of(refused, total_rate_per_min="90")
    assert "您填的是“90”" in text_of(client.post(_address(account), again))


def test_account_form_sent_twice_changes_and_records_once(client: Client) -> None:
    account = make_account(total_rate_per_min=60)
    typed = form_of(client.get(_address(account)), total_rate_per_min="90")
    assert client.post(_address(account), typed).status_code == 302
    assert client.post(_address(account), typed).status_code == 302
    account.refresh_from_db()
    assert account.total_rate_per_min == 90
    assert Event.objects.filter(kind="account.changed").count() == 1


def test_account_rates_set_by_two_people_must_fit_together(client: Client) -> None:
    account = make_account(total_rate_per_min=60, online_reserve_per_min=10)
    typed = form_of(client.get(_address(account)), online_reserve_per_min="50")
    _elsewhere(account, total_rate_per_min=40)
    refused = client.post(_address(account), typed)
    assert refused.status_code == 200
    assert "总速率必须大于在线保留" in text_of(refused)


@pytest.mark.parametrize("make", [make_account, make_gateway])
def test_form_that_does_not_say_what_its_page_showed_is_refused(
    client: Client, make: Callable[[], Account | Gateway]
) -> None:
    row = make()
    sent = form_of(client.get(_address(row)), name="新名")
    bare = {name: value for name, value in sent.items() if not name.startswith("initial-")}
    refused = client.post(_address(row), bare)
    assert refused.status_code == 200
    assert "请刷新页面后再改" in text_of(refused)
    row.refresh_from_db()
    assert row.name != "新名"


def test_refused_form_sent_again_without_a_reload_is_refused_again(client: Client) -> None:
    account = make_account(total_rate_per_min=60)
    sent = form_of(client.get(_address(account)), total_rate_per_min="90")
    del sent["initial-total_rate_per_min"]
    again = client.post(_address(account), form_of(client.post(_address(account), sent)))
    assert again.status_code == 200
    assert "请刷新页面后再改" in text_of(again)


def test_gateway_form_keeps_what_others_set_and_shows_no_secret(client: Client) -> None:
    gateway = make_gateway(token="s3cret-token", options={"success_codes": [0]})
    shown = client.get(_address(gateway))
    assert "s3cret" not in shown.content.decode()
    typed = form_of(shown, name="新名", is_active=None)
    change_gateway(
        gateway_id=gateway.pk,
        actor=None,
        changes={
            "token": "an0ther-token",
            "rate_limit_per_min": 900,
            "options": {"success_codes": [0, 200]},
        },
    )
    assert client.post(_address(gateway), typed).status_code == 302
    gateway.refresh_from_db()
    assert (gateway.name, gateway.is_active, gateway.token) == ("新名", False, "an0ther-token")
    assert (gateway.rate_limit_per_min, gateway.options) == (900, {"success_codes": [0, 200]})


def test_gateway_form_switched_by_two_people_alike_is_no_conflict(client: Client) -> None:
    gateway = make_gateway(is_active=True)
    typed = form_of(client.get(_address(gateway)), is_active=None)
    change_gateway(gateway_id=gateway.pk, actor=None, changes={"is_active": False})
    assert client.post(_address(gateway), typed).status_code == 302
    gateway.refresh_from_db()
    assert not gateway.is_active


def test_gateway_options_typed_by_two_people_are_a_conflict(client: Client) -> None:
    gateway = make_gateway(options={})
    typed = form_of(client.get(_address(gateway)), options='{"success_codes": [1]}')
    change_gateway(gateway_id=gateway.pk, actor=None, changes={"options": {"success_codes": [2]}})
    refused = client.post(_address(gateway), typed)
    assert refused.status_code == 200
    assert "系统 在" in text_of(refused)
    assert client.post(_address(gateway), form_of(refused)).status_code == 302
    gateway.refresh_from_db()
    assert gateway.options == {"success_codes": [1]}


@pytest.fixture
def root() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


def test_person_who_was_switched_off_meanwhile_stays_off(root: Client) -> None:
    user = make_user(username="clerk")
    role = Group.objects.create(name="甲")
    typed = form_of(root.get(_address(user)), email="clerk@corp.cn")
    User.objects.filter(pk=user.pk).update(is_active=False)
    user.groups.add(role)
    assert root.post(_address(user), typed).status_code == 302
    user.refresh_from_db()
    assert (user.email, user.is_active, list(user.groups.all())) == ("clerk@corp.cn", False, [role])


def test_role_given_to_a_person_by_two_people_is_a_conflict(root: Client) -> None:
    user = make_user(username="clerk")
    mine, other = (Group.objects.create(name=name) for name in "甲乙")
    typed = form_of(root.get(_address(user)), groups=[mine.pk])
    user.groups.add(other)
    refused = root.post(_address(user), typed)
    assert "已被他人改为“乙”，您填的是“甲”" in text_of(refused)
    assert list(user.groups.all()) == [other]


def test_permission_taken_from_a_role_meanwhile_stays_taken(root: Client) -> None:
    role = Group.objects.create(name="甲")
    named = {one.codename: one for one in Permission.objects.all()}
    role.permissions.add(named["operate_job"], named["cancel_job"])
    typed = form_of(root.get(_address(role)), name="丙")
    role.permissions.remove(named["cancel_job"])
    assert root.post(_address(role), typed).status_code == 302
    assert Group.objects.get(pk=role.pk).name == "丙"
    assert list(role.permissions.all()) == [named["operate_job"]]


def test_first_permission_of_a_role_survives_a_fault_in_another_field(root: Client) -> None:
    role = Group.objects.create(name="甲")
    wanted = Permission.objects.get(codename="operate_job")
    faulty = form_of(root.get(_address(role)), permissions=[str(wanted.pk)], name="")
    refused = root.post(_address(role), faulty)
    assert refused.status_code == 200
    again = form_of(refused, name="甲")
    assert again["permissions"] == [str(wanted.pk)]
    assert "initial-permissions" not in again
    assert root.post(_address(role), again).status_code == 302
    assert list(role.permissions.all()) == [wanted]


def test_first_role_of_a_person_survives_a_fault_in_another_field(root: Client) -> None:
    user = make_user(username="clerk")
    role = Group.objects.create(name="甲")
    faulty = form_of(root.get(_address(user)), groups=[str(role.pk)], email="-")
    refused = root.post(_address(user), faulty)
    assert refused.status_code == 200
    assert root.post(_address(user), form_of(refused, email="")).status_code == 302
    assert list(user.groups.all()) == [role]
