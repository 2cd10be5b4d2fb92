"""Django's own pages that people can reach: nothing on them speaks Python."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse

from tests.factories import make_account, make_user

from .pages import text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def chief(db: None) -> Client:
    user = make_user(username="chief")
    User.objects.filter(pk=user.pk).update(is_superuser=True)
    client = Client()
    client.force_login(user)
    return client


def test_stock_pages_show_no_objects_of_the_program(chief: Client) -> None:
    account = make_account()
    ids = {
        "auth_user": User.objects.get().pk,
        "auth_group": Group.objects.latest("id").pk,
        "batches_gateway": account.gateway_id,
        "batches_account": account.pk,
    }
    for name, pk in ids.items():
        for page in ("changelist", "add", "change", "history", "delete"):
            args = [] if page in ("changelist", "add") else [pk]
            response = chief.get(reverse(f"admin:{name}_{page}", args=args), follow=True)
            assert response.status_code == 200, (name, page)
            assert "object at 0x" not in text_of(response), (name, page)


def test_roles_are_called_roles_and_reached_from_the_users(chief: Client) -> None:
    people = chief.get(reverse("admin:auth_user_changelist"))
    roles = reverse("admin:auth_group_changelist")
    assert f'href="{roles}"' in people.content.decode()
    assert "<h1>角色</h1>" in chief.get(roles).content.decode()
    pages = [people, chief.get(roles), chief.get(reverse("admin:auth_group_add"))]
    pages += [chief.get(reverse("admin:auth_user_change", args=[User.objects.get().pk]))]
    for page in pages:
        text = text_of(page)
        assert "角色" in text
        assert not re.search(r"(?<![\w分])组", text), re.findall(r".{8}组.{8}", text)


def test_roles_are_not_offered_to_who_may_not_see_them(chief: Client) -> None:
    user = User.objects.get()
    user.is_superuser = False
    user.save()
    user.user_permissions.add(Permission.objects.get(codename="view_user"))
    page = chief.get(reverse("admin:auth_user_changelist"))
    assert page.status_code == 200
    assert 'id="roles"' not in page.content.decode()


def test_gateway_that_is_added_has_no_time_of_creation_yet(chief: Client) -> None:
    gateway = make_account().gateway
    adding = text_of(chief.get(reverse("admin:batches_gateway_add")))
    changing = text_of(chief.get(reverse("admin:batches_gateway_change", args=[gateway.pk])))
    assert "创建时间" not in adding
    assert "创建时间" in changing


def test_lists_are_headed_by_what_they_list(chief: Client) -> None:
    page = chief.get(reverse("admin:batches_gateway_changelist")).content.decode()
    assert "<h1>网关</h1>" in page
