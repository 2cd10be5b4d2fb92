"""用户 and 角色: nobody gives themselves or others more than they have."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse

from tests.factories import make_user

from .pages import form_of

pytestmark = pytest.mark.django_db

PEOPLE = ("view_user", "add_user", "change_user", "delete_user")
ROLES = ("view_group", "add_group", "change_group")
PASSWORD = "a-long-Passw0rd"


@pytest.fixture
def manager() -> User:
    """Somebody who manages people and roles, and may operate jobs; no superuser."""
    user = make_user("view_job", "operate_job", username="manager")
    user.user_permissions.add(*Permission.objects.filter(codename__in=(*PEOPLE, *ROLES)))
    return user


@pytest.fixture
def browser(manager: User) -> Client:
    client = Client()
    client.force_login(manager)
    return client


def _role(name: str, *permissions: str) -> Group:
    role = Group.objects.create(name=name)
    role.permissions.add(*Permission.objects.filter(codename__in=permissions))
    return role


def _change(client: Client, user: User, **typed: object) -> int:
    """Open the person's form, if one may, type, save."""
    address = reverse("admin:auth_user_change", args=[user.pk])
    return client.post(address, form_of(client.get(address), **typed)).status_code


def test_person_who_asks_to_be_a_superuser_stays_what_they_were(
    browser: Client, manager: User
) -> None:
    address = reverse("admin:auth_user_change", args=[manager.pk])
    assert 'name="is_superuser"' not in browser.get(address).content.decode()
    assert _change(browser, manager, is_superuser="on", first_name="小") == 302
    manager.refresh_from_db()
    assert (manager.is_superuser, manager.first_name) == (False, "小")


def test_superuser_makes_another(manager: User) -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    assert _change(client, manager, is_superuser="on") == 302
    manager.refresh_from_db()
    assert manager.is_superuser


@pytest.mark.parametrize("beyond", ["superuser", "supervisor", "supervisor switched off"])
def test_person_who_may_do_more_is_neither_changed_nor_deleted(
    browser: Client, beyond: str
) -> None:
    if beyond == "superuser":
        other = User.objects.create_superuser("root", password=PASSWORD)
    else:
        other = make_user("terminate_job", username="boss")
        other.is_active = "off" not in beyond
        other.set_password(PASSWORD)
        other.save()
    assert _change(browser, other, first_name="改") == 403
    change = reverse("admin:auth_user_password_change", args=[other.pk])
    new = {"password1": "other-Passw0rd!", "password2": "other-Passw0rd!"}
    assert browser.get(change).status_code == 403
    assert browser.post(change, new | {"usable_password": "true"}).status_code == 403
    delete = reverse("admin:auth_user_delete", args=[other.pk])
    assert browser.post(delete, {"post": "yes"}).status_code == 403
    other.refresh_from_db()
    assert other.first_name != "改"
    assert other.check_password(PASSWORD)


def test_person_of_no_greater_powers_gets_a_password(browser: Client) -> None:
    other = make_user("view_job", username="clerk")
    change = reverse("admin:auth_user_password_change", args=[other.pk])
    new = {"password1": PASSWORD, "password2": PASSWORD, "usable_password": "true"}
    assert browser.post(change, new).status_code == 302
    other.refresh_from_db()
    assert other.check_password(PASSWORD)


def test_role_beyond_ones_own_powers_cannot_be_given(browser: Client) -> None:
    within, beyond = _role("甲", "operate_job"), _role("乙", "operate_job", "terminate_job")
    other = make_user("view_job", username="clerk")
    assert _change(browser, other, groups=[within.pk, beyond.pk]) == 200
    assert not other.groups.exists()
    assert _change(browser, other, groups=[within.pk]) == 302
    assert list(other.groups.all()) == [within]


def test_role_beyond_ones_own_powers_cannot_be_given_to_somebody_new(browser: Client) -> None:
    beyond = _role("乙", "terminate_job")
    new = {"username": "mine", "password1": PASSWORD, "password2": PASSWORD, "is_staff": "on"}
    new |= {"usable_password": "true", "groups": [beyond.pk]}
    assert browser.post(reverse("admin:auth_user_add"), new).status_code == 200
    assert not User.objects.filter(username="mine").exists()


def test_own_roles_are_not_ones_own_to_change(browser: Client, manager: User) -> None:
    role = _role("甲", "operate_job")
    assert _change(browser, manager, groups=[role.pk]) == 302
    assert not manager.groups.exists()


def test_role_gets_no_permission_that_its_editor_lacks(browser: Client, manager: User) -> None:
    role = _role("我的", "cancel_job")
    manager.groups.add(_role("只看", "view_job"))
    named = {one.codename: one.pk for one in Permission.objects.all()}
    address = reverse("admin:auth_group_change", args=[role.pk])
    asked = form_of(browser.get(address), permissions=[named["terminate_job"]])
    assert browser.post(address, asked).status_code == 200
    assert {one.codename for one in role.permissions.all()} == {"cancel_job"}
    asked["permissions"] = [named["operate_job"]]
    assert browser.post(address, asked).status_code == 302
    # what the editor cannot see stays
    assert {one.codename for one in role.permissions.all()} == {"cancel_job", "operate_job"}


def test_add_page_opens_lets_the_new_person_sign_in_and_speaks_chinese(browser: Client) -> None:
    shown = browser.get(reverse("admin:auth_user_add"))
    assert shown.context["adminform"].form.initial["is_staff"] is True
    assert "After you" not in shown.content.decode()
