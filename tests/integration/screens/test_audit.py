"""审计: changes of rates, secrets and rights are in it, in words, and can be found."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from batches.domain.actors import Shell
from batches.models import Account, Event, Gateway
from batches.services import jobs
from batches.services.settings import add_account, change_account
from tests.factories import make_account, make_gateway, make_job, make_user

from .pages import form_of, text_of

pytestmark = pytest.mark.django_db
PASSWORD = "a-long-Passw0rd"


@pytest.fixture
def root() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root", first_name="王芳", password=PASSWORD))
    return client


def _save(client: Client, address: str, **typed: Any) -> None:
    response = client.post(address, form_of(client.get(address), **typed))
    assert response.status_code == 302, text_of(response)


def _lines(client: Client, **asked: Any) -> list[str]:
    """The rows of the audit as a person reads them."""
    found = client.get(reverse("admin:audit"), asked)
    return [
        " ".join(filter(None, (str(line.label), line.detail))) for line in found.context["lines"]
    ]


def _change(row: Any) -> str:
    meta = row._meta
    return reverse(f"admin:{meta.app_label}_{meta.model_name}_change", args=[row.pk])


def test_account_changed_on_its_form_tells_each_field_before_and_after(root: Client) -> None:
    account = make_account(guid="acc-1", name="客服甲", total_rate_per_min=60)
    _save(root, _change(account), total_rate_per_min="1200", name="客服乙")
    (event,) = Event.objects.all()
    assert (event.kind, event.account_id, event.actor_name) == (
        "account.changed",
        account.pk,
        "王芳",
    )
    assert event.data == {
        "before": {"name": "客服甲", "total_rate_per_min": 60},
        "after": {"name": "客服乙", "total_rate_per_min": 1200},
    }
    assert _lines(root) == ["修改账号 名称：客服甲 → 客服乙；总速率（条/分）：60 → 1,200"]


def test_account_form_saved_as_it_was_records_nothing(root: Client) -> None:
    _save(root, _change(make_account()))
    assert not Event.objects.exists()


def test_account_added_and_deleted_tells_what_it_was(root: Client) -> None:
    gateway = make_gateway(base_url="http://10.0.0.1")
    address = reverse("admin:batches_account_add")
    _save(root, address, gateway=gateway.pk, guid="acc-1", name="客服甲")
    account = Account.objects.get()
    assert Event.objects.get().data["after"]["total_rate_per_min"] == 60
    gone = reverse("admin:batches_account_delete", args=[account.pk])
    assert root.post(gone, {"post": "yes"}).status_code == 302
    event = Event.objects.latest("id")
    assert (event.kind, event.data["before"]["guid"]) == ("account.deleted", "acc-1")
    assert "客服甲" in text_of(root.get(reverse("admin:audit")))


def test_gateway_changed_on_its_form_never_tells_a_secret(root: Client) -> None:
    gateway = make_gateway(
        name="网关甲", token="s3cret-old", options={"headers": {"X-Tenant": "s3cret-header"}}
    )
    options = {"headers": {"X-Tenant": "s3cret-other"}, "success_codes": [0, 200]}
    _save(
        root,
        _change(gateway),
        new_token="s3cret-new",
        rate_limit_per_min="600",
        options=json.dumps(options),
    )
    event = Event.objects.get()
    assert event.kind == "gateway.changed"
    assert event.data["replaced"] == ["options.headers", "token"]
    assert "s3cret" not in json.dumps(event.data)
    shown = text_of(root.get(reverse("admin:audit")))
    assert "s3cret" not in shown
    assert "总速率上限（条/分）：不限 → 600" in shown
    assert "选项：（空） → {&quot;success_codes&quot;: [0, 200]}" in shown
    assert "令牌：已更换" in shown
    assert "选项中的请求头：已更换" in shown
    assert "网关甲" in shown


@pytest.mark.parametrize(
    ("token", "headers", "said"),
    [
        ("", {}, []),
        ("s3cret", {}, ["令牌：已设置"]),
        ("", {"X-Tenant": "s3cret"}, ["选项中的请求头：已设置"]),
    ],
)
def test_gateway_added_says_which_secrets_it_was_given(
    root: Client, token: str, headers: dict[str, str], said: list[str]
) -> None:
    given = {"name": "网关", "base_url": "http://10.0.0.1:8080", "new_token": token}
    given |= {"options": json.dumps({"headers": headers})}
    _save(root, reverse("admin:batches_gateway_add"), **given)
    (line,) = _lines(root)
    assert [part for part in line.split("；") if "：已" in part] == said


def test_gateway_token_and_headers_come_and_go_in_words(root: Client) -> None:
    gateway = make_gateway(token="", options={"headers": {"X-Tenant": "s3cret"}})
    _save(root, _change(gateway), new_token="s3cret", options="{}")
    assert _lines(root) == ["修改网关 令牌：已设置；选项中的请求头：已清除"]


def test_gateway_added_and_deleted_is_recorded(root: Client) -> None:
    given = {"name": "网关", "base_url": "http://10.0.0.1:8080", "new_token": "s3cret"}
    _save(root, reverse("admin:batches_gateway_add"), **given)
    gateway = Gateway.objects.get()
    gone = reverse("admin:batches_gateway_delete", args=[gateway.pk])
    assert root.post(gone, {"post": "yes"}).status_code == 302
    kinds = list(Event.objects.order_by("id").values_list("kind", flat=True))
    assert kinds == ["gateway.added", "gateway.deleted"]
    assert "s3cret" not in json.dumps(list(Event.objects.values_list("data", flat=True)))


def test_person_changed_tells_roles_and_rights(root: Client) -> None:
    user = make_user(username="clerk")
    role, other = Group.objects.create(name="操作"), Group.objects.create(name="查看")
    user.groups.add(other)
    _save(root, _change(user), groups=[role.pk], is_superuser="on", is_active=None)
    event = Event.objects.get()
    assert (event.kind, event.data["object"]) == ("user.changed", {"id": user.pk, "name": "clerk"})
    (line,) = _lines(root)
    assert line.startswith("修改用户 ")
    assert "角色：加上 操作，去掉 查看" in line
    assert "超级用户" in line
    assert "：否 → 是" in line
    assert "：是 → 否" in line


def test_password_changed_is_told_and_never_shown(root: Client) -> None:
    user = make_user(username="clerk", password="first-Passw0rd")
    given = {"password1": "other-Passw0rd!", "password2": "other-Passw0rd!"}
    address = reverse("admin:auth_user_password_change", args=[user.pk])
    assert root.post(address, given | {"usable_password": "true"}).status_code == 302
    own = {"old_password": PASSWORD, "new_password1": "new-Passw0rd!"}
    own["new_password2"] = own["new_password1"]
    assert root.post(reverse("admin:password_change"), own).status_code == 302
    assert [event.data["replaced"] for event in Event.objects.all()] == [["password"]] * 2
    told = json.dumps(list(Event.objects.values_list("data", flat=True)))
    assert "pbkdf2" not in told
    assert "Passw0rd" not in told
    assert _lines(root) == ["修改用户 密码：已更换"] * 2


def test_password_refused_records_nothing(root: Client) -> None:
    root.post(reverse("admin:password_change"), {"old_password": "wrong"})
    assert not Event.objects.exists()


def test_person_and_role_added_and_deleted_are_recorded(root: Client) -> None:
    role = reverse("admin:auth_group_add")
    wanted = Permission.objects.get(codename="operate_job")
    _save(root, role, name="操作员", permissions=[wanted.pk])
    group = Group.objects.get(name="操作员")
    new = {"username": "mine", "password1": PASSWORD, "password2": PASSWORD}
    new |= {"usable_password": "true"}
    _save(root, reverse("admin:auth_user_add"), **new, groups=[group.pk])
    user = User.objects.get(username="mine")
    for kind, pk in (("user", user.pk), ("group", group.pk)):
        gone = reverse(f"admin:auth_{kind}_delete", args=[pk])
        assert root.post(gone, {"post": "yes"}).status_code == 302
    found = {event.kind: event.data for event in Event.objects.all()}
    assert list(found) == ["role.added", "user.added", "user.deleted", "role.deleted"]
    assert found["role.added"]["after"]["permissions"] == ["batches.operate_job"]
    assert found["user.added"]["after"]["groups"] == ["操作员"]
    assert found["user.deleted"]["before"]["groups"] == ["操作员"]
    deleted, added = (line for line in _lines(root) if "用户" in line.partition(" ")[0])
    assert "密码：已设置" in added
    assert "密码" not in deleted


def test_role_changed_tells_permissions_in_words(root: Client) -> None:
    role = Group.objects.create(name="操作")
    named = {one.codename: one.pk for one in Permission.objects.all()}
    role.permissions.add(named["operate_job"])
    _save(root, _change(role), permissions=[named["change_account"]])
    (line,) = _lines(root)
    assert line == "修改角色 权限：加上 可以修改：账号，去掉 可以创建、启动、暂停、继续作业"


def test_breaker_and_status_tell_what_they_were(root: Client) -> None:
    job = make_job(status="paused", pause_reason="operator", breaker_streak=10)
    jobs.set_breaker(job_id=job.pk, actor=None, streak=4, ratio=0.25)
    jobs.resume_job(job_id=job.pk, actor=None)
    assert _lines(root, job=job.pk) == [
        "继续 已暂停（人工暂停） → 运行中",
        "调整熔断 作业失败率上限：0.5 → 0.25；分片连续失败上限：10 → 4",
    ]


def test_audit_of_an_account_by_guid_or_name_shows_that_account_alone(root: Client) -> None:
    one, other = (make_account(guid=f"acc-{n}", name=f"客服{n}") for n in "12")
    for account in (one, other):
        change_account(account_id=account.pk, actor=None, changes={"max_inflight": 2})
    for asked in ("acc-1", " 客服1 "):
        found = root.get(reverse("admin:audit"), {"account": asked}).context["lines"]
        assert [line.event.account_id for line in found] == [one.pk]
    assert _lines(root, account="acc-9") == []
    assert len(_lines(root, account="")) == 2


@pytest.mark.parametrize(
    ("asked", "found"),
    [("模板", 1), ("lei", 1), ("100%", 1), ("1%0", 0), ("_", 0), ("a\0b", 0), ("字" * 500, 0)],
)
def test_audit_search_looks_into_reasons_and_actors_literally(
    root: Client, asked: str, found: int
) -> None:
    job = make_job()
    jobs.pause_job(job_id=job.pk, actor=make_user("operate_job", first_name="Lei"), reason="停")
    jobs.set_rate(job_id=job.pk, actor=None, per_min=5, reason="模板写错了")
    jobs.set_rate(job_id=job.pk, actor=None, per_min=6, reason="到 100% 了")
    assert len(_lines(root, q=asked)) == found


def test_audit_filter_tells_the_command_line_from_the_system(root: Client) -> None:
    job = make_job()
    shell = Shell(user="ops", host="host-1")
    jobs.raise_budget(job_id=make_job(budget_limit=1).pk, actor=shell, to=20, reason="效果好")
    Event.objects.create(kind="job.completed", job=job)
    assert _lines(root, actor="-") == ["已完成"]
    shown = root.get(reverse("admin:audit"), {"actor": "cli"})
    assert len(shown.context["lines"]) == 1
    assert "命令行 ops@host-1" in text_of(shown)
    assert "cli:" not in text_of(shown)


def test_audit_by_the_command_line_finds_its_lines_by_index(root: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "insert into batches_event (kind, actor_name, reason, data) select 'job.paused',"
            " case when n % 1000 = 0 then 'cli:ops@host' else 'x' end, '', '{}'"
            " from generate_series(1, 30000) n"
        )
        cursor.execute("analyze batches_event")
        with CaptureQueriesContext(connection) as captured:
            assert len(_lines(root, actor="cli")) == 30
        (query,) = (one["sql"] for one in captured if "LIKE 'cli:" in one["sql"])
        cursor.execute(f"explain {query}")
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "event_shell" in plan, plan


@pytest.mark.parametrize(
    ("permission", "kinds"),
    [
        (None, set()),
        ("auth.view_user", {"user.added", "user.changed"}),
        ("auth.view_group", {"role.changed"}),
        ("batches.view_gateway", {"gateway.changed"}),
    ],
)
def test_audit_shows_settings_to_those_who_may_see_them_elsewhere(
    permission: str | None, kinds: set[str]
) -> None:
    always = {"job.paused", "account.changed"}
    guarded = {"user.added", "user.changed", "role.changed", "gateway.changed"}
    for kind in (*always, *guarded):
        Event.objects.create(kind=kind, data={"after": {"email": f"to@{kind}"}})
    person = make_user("view_job")
    if permission:
        app, _, codename = permission.partition(".")
        person.user_permissions.add(
            Permission.objects.get(content_type__app_label=app, codename=codename)
        )
    client = Client()
    client.force_login(person)
    shown = client.get(reverse("admin:audit"))
    assert {line.event.kind for line in shown.context["lines"]} == always | kinds
    offered = {kind for kind, _label in shown.context["kinds"]}
    assert offered & (always | guarded) == always | kinds
    for kind in guarded - kinds:
        assert _lines(client, kind=kind) == []
        assert kind not in shown.content.decode()


@pytest.mark.parametrize("may", [True, False])
def test_audit_of_an_account_tells_its_gateways_address_to_those_who_may_see_it(may: bool) -> None:
    gateway = make_gateway(base_url="http://10.9.8.7")
    account = Account(gateway=gateway, guid="acc-1", name="客服甲")
    add_account(account=account, actor=None)
    client = Client()
    client.force_login(make_user("view_job", *(["view_gateway"] if may else [])))
    (line,) = _lines(client)
    assert "名称：客服甲" in line
    assert ("10.9.8.7" in line) is may


def test_audit_pages_keep_the_filters(root: Client) -> None:
    account = make_account(guid="acc-1")
    for number in range(60):
        Event.objects.create(
            kind="account.changed", account=account, reason=f"第 {number} 次", data={}
        )
    first = root.get(reverse("admin:audit"), {"account": "acc-1", "q": "次"})
    following = root.get(reverse("admin:audit") + first.context["next_page"])
    assert (len(first.context["lines"]), len(following.context["lines"])) == (50, 10)
    assert 'value="acc-1"' in following.content.decode()
