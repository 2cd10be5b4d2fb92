"""账号, 网关, 审计, 告警 and the test send."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from cryptography.fernet import Fernet, MultiFernet
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from batches.models import Account, Alert, Event, Gateway
from batches.services.test_send import TestResult
from batches.store.events import add_event
from tests.factories import ShardSpec, make_account, make_gateway, make_job, make_user

from .pages import form_of, text_of

pytestmark = pytest.mark.django_db


def test_list_tells_rate_condition_and_work(client: Client) -> None:
    account = make_account(
        name="客服甲", total_rate_per_min=60, online_reserve_per_min=10, throttle=0.5
    )
    make_job(shards=[ShardSpec(pending=5, account=account)])
    row = client.get(reverse("admin:accounts")).context["rows"][0]
    assert (row.rate_now, row.jobs, row.pending) == (25, 1, 5)


def test_list_tells_of_what_stands_still_because_of_the_account(client: Client) -> None:
    account = make_account(name="客服甲", health="credential")
    stopped = ShardSpec(pending=5, account=account, status="paused", reason="credential")
    make_job(shards=[stopped, ShardSpec(pending=1)])
    make_job(status="paused", shards=[ShardSpec(pending=2, account=account)])
    make_job(status="cancelled", shards=[ShardSpec(abandoned=3, account=account)])
    row = client.get(reverse("admin:accounts"), {"trouble": "1"}).context["rows"][0]
    assert (row.jobs, row.pending) == (2, 7)


def test_list_narrowed_to_trouble_shows_no_healthy_account(client: Client) -> None:
    make_account(name="好的")
    bad = make_account(name="坏的", health="credential")
    off = make_account(name="停的", is_active=False)
    found = client.get(reverse("admin:accounts"), {"trouble": "1"}).context["rows"]
    assert {row.account.pk for row in found} == {bad.pk, off.pk}


def test_list_is_paged_and_searched(client: Client) -> None:
    gateway = make_gateway()
    for number in range(60):
        make_account(gateway=gateway, guid=f"g-{number:03}")
    page = client.get(reverse("admin:accounts"))
    assert len(page.context["rows"]) == 50
    rest = client.get(reverse("admin:accounts") + page.context["next_page"])
    assert len(rest.context["rows"]) == 10
    found = client.get(reverse("admin:accounts"), {"q": "g-059"}).context["rows"]
    assert [row.account.guid for row in found] == ["g-059"]


def test_account_switched_off_needs_a_reason_and_is_audited(client: Client) -> None:
    account = make_account()
    address = reverse("admin:account_active", args=[account.pk])
    assert client.post(address, {"active": "0", "reason": ""}).status_code == 422
    assert Account.objects.get(pk=account.pk).is_active
    assert client.post(address, {"active": "0", "reason": "离职"}).status_code == 303
    assert not Account.objects.get(pk=account.pk).is_active
    event = Event.objects.get(account=account)
    assert (event.kind, event.reason) == ("account.disabled", "离职")
    client.post(address, {"active": "1"})
    assert Account.objects.get(pk=account.pk).is_active
    # switched on twice is one act
    client.post(address, {"active": "1"})
    assert Event.objects.filter(account=account, kind="account.enabled").count() == 1


def test_account_switch_is_for_those_who_may_change_accounts(
    sign_in: Callable[..., Client],
) -> None:
    account = make_account()
    address = reverse("admin:account_active", args=[account.pk])
    client = sign_in("operate_job", "view_account")
    assert client.post(address, {"active": "0", "reason": "x"}).status_code == 403
    assert client.get(address).status_code == 403
    assert Account.objects.get(pk=account.pk).is_active


def test_account_signed_in_again_runs_on(client: Client) -> None:
    account = make_account(name="客服乙", health="credential")
    job = make_job(
        shards=[ShardSpec(pending=3, account=account, status="paused", reason="credential")]
    )
    address = reverse("admin:account_restore", args=[account.pk])
    assert address in client.get(reverse("admin:accounts")).content.decode()
    assert client.get(address).status_code == 405
    client.post(address)
    shown = text_of(client.get(reverse("admin:accounts")))
    assert "账号「客服乙」已恢复，1 个分片继续发送" in shown
    assert Account.objects.get(pk=account.pk).health == "ok"
    assert not job.shards.filter(status="paused").exists()
    assert address not in client.get(reverse("admin:accounts")).content.decode()


def test_account_is_restored_by_operators_only(sign_in: Callable[..., Client]) -> None:
    account = make_account(health="credential")
    address = reverse("admin:account_restore", args=[account.pk])
    assert sign_in("change_account").post(address).status_code == 403
    assert Account.objects.get(pk=account.pk).health == "credential"


def test_account_form_cannot_set_the_reserve_above_the_rate(client: Client) -> None:
    account = make_account()
    response = _change(
        client, account, name="新名", total_rate_per_min="10", online_reserve_per_min="10"
    )
    assert response.status_code == 200
    assert "总速率必须大于在线保留" in text_of(response)
    assert Account.objects.get(pk=account.pk).name != "新名"


def test_account_form_leaves_alone_what_a_lane_wrote_meanwhile(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = make_account(gate_at=None)
    meant = Account.clean_fields

    def claimed_meanwhile(self: Account, exclude: Any = None) -> None:
        """A claim commits between the form's reading of the row and its writing."""
        Account.objects.filter(pk=account.pk).update(gate_at=timezone.now(), throttle=0.5)
        meant(self, exclude=exclude)

    monkeypatch.setattr(Account, "clean_fields", claimed_meanwhile)
    response = _change(client, account, name="新名")
    assert response.status_code == 302, text_of(response)
    account.refresh_from_db()
    assert (account.name, account.throttle) == ("新名", 0.5)
    assert account.gate_at is not None


def _change(client: Client, row: Account | Gateway, **typed: Any) -> Any:
    """Open the row's form, type, save."""
    address = reverse(f"admin:batches_{row._meta.model_name}_change", args=[row.pk])
    return client.post(address, form_of(client.get(address), **typed))


def _gateway_form(**more: str) -> dict[str, str]:
    return {
        "name": "网关",
        "kind": "wecomapi",
        "base_url": "http://10.0.0.1:8080",
        "dialect": "path",
        "options": "{}",
        "timeout_seconds": "5",
        "is_active": "on",
    } | more


def test_gateway_token_is_written_and_never_shown(client: Client) -> None:
    response = client.post(
        reverse("admin:batches_gateway_add"), _gateway_form(new_token="s3cret-token")
    )
    assert response.status_code == 302, text_of(response)
    gateway = Gateway.objects.get()
    assert gateway.token == "s3cret-token"
    assert len(gateway.callback_secret) >= 24
    address = reverse("admin:batches_gateway_change", args=[gateway.pk])
    assert "s3cret-token" not in client.get(address).content.decode()
    assert _change(client, gateway, name="改名").status_code == 302
    gateway.refresh_from_db()
    assert (gateway.name, gateway.token) == ("改名", "s3cret-token")


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({"options": '{"sucess_codes": [0]}'}, "options", "不认识的网关选项“sucess_codes”"),
        ({"options": '{"success_codes": 200}'}, "options", "非空的成功码列表"),
        ({"options": "[0]"}, "options", "JSON 对象"),
        ({"base_url": "http://10.0.0.1/?key=1"}, "base_url", "不带参数"),
        ({"base_url": "http://me:secret@10.0.0.1/"}, "base_url", "用户名和密码"),
        ({"new_token": "a\tb"}, "new_token", "只能含可打印的英文字符"),
        ({"kind": "other"}, "kind", "other"),
    ],
)
def test_gateway_that_could_not_send_is_refused_at_the_field(
    client: Client, given: dict[str, str], field: str, words: str
) -> None:
    response = client.post(reverse("admin:batches_gateway_add"), _gateway_form(**given))
    assert response.status_code == 200
    errors = response.context["adminform"].form.errors
    assert list(errors) == [field]
    assert words in errors[field][0]
    assert not Gateway.objects.exists()


def test_gateway_without_options_takes_the_defaults(client: Client) -> None:
    response = client.post(reverse("admin:batches_gateway_add"), _gateway_form(options=""))
    assert response.status_code == 302
    assert Gateway.objects.get().options == {}


def test_token_that_no_key_opens_is_told_and_kept(client: Client) -> None:
    gateway = make_gateway(name="网关", token="s3cret-token")
    address = reverse("admin:batches_gateway_change", args=[gateway.pk])
    said = "令牌无法解密，请重新填写"
    assert said not in text_of(client.get(address))
    with pytest.MonkeyPatch.context() as patch:
        # tokens alone get another key, so that the session stays good
        patch.setattr("batches.models.secret._box", _another_box)
        assert said in text_of(client.get(address))
        assert _change(client, gateway, name="改名").status_code == 302
    gateway.refresh_from_db()
    assert (gateway.name, gateway.token) == ("改名", "s3cret-token")


def _another_box() -> MultiFernet:
    return MultiFernet([Fernet(Fernet.generate_key())])


def test_gateway_page_says_that_callbacks_are_not_received(client: Client) -> None:
    gateway = make_gateway()
    shown = client.get(reverse("admin:batches_gateway_change", args=[gateway.pk]))
    assert "本版本还不接收回调" in text_of(shown)
    assert gateway.callback_secret not in shown.content.decode()


def test_test_send_submitted_twice_is_sent_once(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[dict[str, Any]] = []

    def send(**asked: Any) -> TestResult:
        sent.append(asked)
        return TestResult("accepted", "网关已接受。", 12)

    monkeypatch.setattr("batches.admin.test_send.send_test", send)
    account = make_account()
    address = reverse("admin:account_test", args=[account.pk])
    mark = client.get(address).context["form_mark"]
    form = {"form": mark, "target": "788130001", "content": "测试"}
    first = client.post(address, form)
    shown = text_of(client.get(first.headers["Location"]))
    assert "网关已接受。" in shown
    second = client.post(address, form)
    assert "没有再发一次" in text_of(client.get(second.headers["Location"]))
    assert len(sent) == 1
    assert sent[0]["content"] == "测试"


@pytest.mark.parametrize("outcome", ["limited", "refused", "not_sent"])
def test_test_send_that_did_not_go_out_comes_back_as_it_was_typed(
    outcome: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []

    def send(**asked: Any) -> TestResult:
        sent.append(asked["content"])
        return TestResult(outcome, "没有发出。", 12)

    monkeypatch.setattr("batches.admin.test_send.send_test", send)
    address = reverse("admin:account_test", args=[make_account().pk])
    form = {"form": client.get(address).context["form_mark"], "target": "7881", "content": "甲\n乙"}
    back = client.post(address, form)
    assert back.status_code == 200
    assert "没有发出。" in text_of(back)
    html = back.content.decode()
    assert 'value="7881"' in html
    assert "甲\n乙</textarea>" in html
    client.post(address, form)  # the second of two clicks
    assert len(sent) == 1
    client.post(address, form | {"form": back.context["form_mark"]})
    assert len(sent) == 2


def test_test_send_in_doubt_is_not_offered_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "batches.admin.test_send.send_test", lambda **_: TestResult("unknown", "不确定。", 12)
    )
    address = reverse("admin:account_test", args=[make_account().pk])
    mark = client.get(address).context["form_mark"]
    back = client.post(address, {"form": mark, "target": "1", "content": "测试"})
    assert (back.status_code, back.headers["Location"]) == (303, address)


def test_test_send_clicked_again_while_the_first_waits_is_sent_once(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = reverse("admin:account_test", args=[make_account().pk])
    form = {"form": client.get(address).context["form_mark"], "target": "1", "content": "测试"}
    second = Client()
    second.cookies = client.cookies
    sent: list[dict[str, Any]] = []

    def send(**asked: Any) -> TestResult:
        sent.append(asked)
        if len(sent) == 1:
            second.post(address, form)
        return TestResult("accepted", "网关已接受。", 12)

    monkeypatch.setattr("batches.admin.test_send.send_test", send)
    client.post(address, form)
    assert len(sent) == 1


def test_test_send_clicked_twice_at_once_is_sent_once(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = reverse("admin:account_test", args=[make_account().pk])
    form = {"form": client.get(address).context["form_mark"], "target": "1", "content": "测试"}
    second = Client()
    second.cookies = client.cookies
    sent: list[dict[str, Any]] = []
    asked: list[object] = []

    def allowed(**_: object) -> bool:
        """The first request has read its session; the second comes and goes in between."""
        asked.append(None)
        if len(asked) == 1:
            second.post(address, form)
        return True

    def send(**given: Any) -> TestResult:
        sent.append(given)
        return TestResult("accepted", "网关已接受。", 12)

    monkeypatch.setattr("batches.admin.test_send.is_allowed", allowed)
    monkeypatch.setattr("batches.admin.test_send.send_test", send)
    client.post(address, form)
    assert (len(asked), len(sent)) == (2, 1)


def test_test_send_of_two_accounts_in_two_tabs_sends_both(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []

    def send(**given: Any) -> TestResult:
        sent.append(given["account_id"])
        return TestResult("accepted", "网关已接受。", 12)

    monkeypatch.setattr("batches.admin.test_send.send_test", send)
    accounts = [make_account().pk for _ in range(2)]
    tabs = [reverse("admin:account_test", args=[account]) for account in accounts]
    marks = [client.get(tab).context["form_mark"] for tab in tabs]
    # the form of one account is no form of another
    client.post(tabs[0], {"form": marks[1], "target": "1", "content": "测试"})
    assert sent == []
    for tab, mark in zip(tabs, marks, strict=True):
        client.post(tab, {"form": mark, "target": "1", "content": "测试"})
    assert sent == accounts


def test_test_send_forms_that_were_never_sent_do_not_pile_up(client: Client) -> None:
    address = reverse("admin:account_test", args=[make_account().pk])
    marks = [client.get(address).context["form_mark"] for _ in range(25)]
    assert list(client.session["test_send_forms"]) == marks[-20:]


def test_test_send_is_for_operators(sign_in: Callable[..., Client]) -> None:
    address = reverse("admin:account_test", args=[make_account().pk])
    assert sign_in("view_account").get(address).status_code == 403


def test_audit_is_narrowed_by_job_person_and_kind(client: Client) -> None:
    person = make_user(username="ann")
    job, other = make_job(), make_job()
    add_event(kind="job.paused", job_id=job.pk, actor=person, reason="一")
    add_event(kind="job.completed", job_id=job.pk)
    add_event(kind="job.paused", job_id=other.pk, actor=person)

    def kinds(**query: Any) -> list[str]:
        lines = client.get(reverse("admin:audit"), query).context["lines"]
        return [line.event.kind for line in lines]

    assert len(kinds()) == 3
    assert kinds(job=job.pk) == ["job.completed", "job.paused"]
    assert kinds(actor=person.pk, job=job.pk) == ["job.paused"]
    assert kinds(actor="-") == ["job.completed"]
    assert kinds(kind="job.completed") == ["job.completed"]
    assert kinds(job="x", actor="y") == kinds()


def test_audit_is_narrowed_by_days_of_the_installation(client: Client) -> None:
    # 2026-03-04 23:30 and 2026-03-05 00:30 in Asia/Shanghai
    add_event(kind="job.paused")
    add_event(kind="job.completed")
    evening, night = Event.objects.order_by("id")
    zone = ZoneInfo("Asia/Shanghai")
    for event, at in (
        (evening, datetime(2026, 3, 4, 23, 30, tzinfo=zone)),
        (night, datetime(2026, 3, 5, 0, 30, tzinfo=zone)),
    ):
        Event.objects.filter(pk=event.pk).update(at=at)

    def ids(**query: str) -> list[int]:
        lines = client.get(reverse("admin:audit"), query).context["lines"]
        return [line.event.pk for line in lines]

    assert ids(**{"from": "2026-03-05"}) == [night.pk]
    assert ids(to="2026-03-04") == [evening.pk]
    assert ids(**{"from": "2026-03-04", "to": "2026-03-05"}) == [night.pk, evening.pk]
    assert ids(**{"from": "9999-12-31", "to": "0001-01-01"}) == [night.pk, evening.pk]


def test_audit_is_paged_newest_first(client: Client) -> None:
    job = make_job()
    for _ in range(60):
        add_event(kind="job.rate_set", job_id=job.pk)
    page = client.get(reverse("admin:audit"))
    rest = client.get(reverse("admin:audit") + page.context["next_page"])
    seen = [line.event.pk for line in [*page.context["lines"], *rest.context["lines"]]]
    assert len(seen) == 60
    assert seen == sorted(seen, reverse=True)


def test_alerts_open_ones_first(client: Client) -> None:
    job = make_job(name="某作业")
    Alert.objects.create(
        key="a", kind="stuck", job=job, text="作业 %(name)s 卡住", params={"name": "某作业"}
    )
    Alert.objects.create(key="b", kind="old", text="过去的事", closed_at=timezone.now())
    page = client.get(reverse("admin:alerts"))
    assert [alert.key for alert in page.context["open"]] == ["a"]
    assert [alert.key for alert in page.context["closed"]] == ["b"]
    assert "作业 某作业 卡住" in text_of(page)
