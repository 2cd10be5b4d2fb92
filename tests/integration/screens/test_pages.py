"""Every page: it opens, obeys the policy, leads nowhere outside, and shows what it must."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse

from batches.domain.states import JobStatus
from batches.models import Event, Rejection
from batches.selectors.overview import MAX_LINES
from tests.factories import ShardSpec, items_of, make_job, make_user

from .conftest import World
from .pages import faults_of, form_of, text_of

pytestmark = pytest.mark.django_db


def _pages(world: World) -> dict[str, str]:
    running, completed = world.running.pk, world.completed.pk
    item = items_of(world.running, "failed")[0]
    return {
        "overview": reverse("admin:index"),
        "jobs": reverse("admin:jobs"),
        "jobs by state and name": reverse("admin:jobs") + "?tab=running&q=跑",
        "new job": reverse("admin:job_new"),
        "running": reverse("admin:job", args=[running]),
        "paused": reverse("admin:job", args=[world.paused.pk]),
        "awaiting": reverse("admin:job", args=[world.awaiting.pk]),
        "rejected": reverse("admin:job", args=[world.rejected.pk]),
        "preparing": reverse("admin:job", args=[world.preparing.pk]),
        "completed": reverse("admin:job", args=[completed]),
        "shards": reverse("admin:job_shards", args=[running]) + "?having=in_doubt",
        "shard": reverse("admin:job_shard", args=[running, 1]) + "?part=failed",
        "item": reverse("admin:job_item", args=[running, item.pk]),
        "failures": reverse("admin:job_failures", args=[running]),
        "category": reverse("admin:job_category", args=[running, "other"]) + "?code=500",
        "cancel": reverse("admin:job_cancel", args=[running]),
        "terminate": reverse("admin:job_terminate", args=[running]),
        "budget": reverse("admin:job_budget", args=[running]),
        "stage": reverse("admin:job_stage", args=[world.paused.pk]),
        "retry": reverse("admin:job_retry", args=[completed]),
        "limits": reverse("admin:job_limits", args=[running]),
        "reconcile": reverse("admin:reconcile"),
        "reconcile one job": reverse("admin:reconcile") + f"?job={running}&kind=unconfirmed",
        "accounts": reverse("admin:accounts"),
        "accounts in trouble": reverse("admin:accounts") + f"?trouble=1&q=x&job={running}",
        "account off": reverse("admin:account_active", args=[world.account.pk]),
        "test send": reverse("admin:account_test", args=[world.account.pk]),
        "audit": reverse("admin:audit") + f"?job={running}&kind=job.paused&actor=-",
        "alerts": reverse("admin:alerts"),
        "gateways": reverse("admin:batches_gateway_changelist"),
        "gateway": reverse("admin:batches_gateway_change", args=[world.account.gateway_id]),
        "account": reverse("admin:batches_account_change", args=[world.account.pk]),
        "password": reverse("admin:password_change"),
    }


def test_pages_opened_by_an_operator_are_clean(client: Client, world: World) -> None:
    for name, address in _pages(world).items():
        response = client.get(address)
        assert response.status_code == 200, name
        html = response.content.decode()
        # the gateway's own address stands in its form: it is what was typed
        html = html.replace(world.account.gateway.base_url, "")
        assert faults_of(html) == [], name
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert '<html lang="zh-hans"' in html
        assert "<main" in html, name
        assert html.count("<h1") == 1, name


def test_pages_without_a_session_lead_to_the_sign_in(world: World) -> None:
    for name, address in _pages(world).items():
        response = Client().get(address)
        assert response.status_code == 302, name
        assert response.headers["Location"].startswith("/admin/login/"), name


def test_pages_opened_without_a_role_are_refused(world: World) -> None:
    client = Client()
    client.force_login(make_user())
    for name, address in _pages(world).items():
        if name != "password":
            assert client.get(address).status_code == 403, name


def test_pages_opened_by_a_viewer_show_no_verb(
    sign_in: Callable[..., Client], world: World
) -> None:
    viewer = sign_in()
    for job in (world.running, world.paused, world.awaiting, world.completed):
        html = viewer.get(reverse("admin:job", args=[job.pk])).content.decode()
        for verb in ("pause", "resume", "cancel", "terminate", "rate", "confirm", "retry"):
            assert reverse(f"admin:job_{verb}", args=[job.pk]) not in html
    queue = viewer.get(reverse("admin:reconcile")).content.decode()
    assert reverse("admin:reconcile_mark") not in queue
    assert reverse("admin:job_new") not in viewer.get(reverse("admin:jobs")).content.decode()


def test_sign_in_and_error_pages_are_clean(client: Client, world: World) -> None:
    for response, status in (
        (Client().get("/admin/login/"), 200),
        (client.get("/admin/jobs/999999/"), 404),
        (client.get("/admin/nowhere/"), 404),
    ):
        assert response.status_code == status
        assert faults_of(response.content.decode()) == []


def test_stock_pages_of_users_are_clean(admin_client: Client) -> None:
    group = Group.objects.get(name="运营")
    for address in (
        reverse("admin:auth_user_changelist"),
        reverse("admin:auth_user_add"),
        reverse("admin:auth_user_change", args=[admin_client.session["_auth_user_id"]]),
        reverse("admin:auth_group_change", args=[group.pk]),
    ):
        response = admin_client.get(address)
        assert response.status_code == 200
        html = response.content.decode()
        assert faults_of(html) == [], address
        assert "Can add" not in html


def test_a_role_saved_in_the_console_keeps_permissions_not_shown(admin_client: Client) -> None:
    group = Group.objects.get(name="运营")
    before = set(group.permissions.values_list("codename", flat=True))
    shown = admin_client.get(reverse("admin:auth_group_change", args=[group.pk]))
    boxes = shown.context["adminform"].form.fields["permissions"].queryset
    ticked = boxes.filter(pk__in=group.permissions.values("pk"))
    response = admin_client.post(
        reverse("admin:auth_group_change", args=[group.pk]), form_of(shown, name="运营部")
    )
    assert response.status_code == 302
    assert 0 < len(ticked) < len(before)
    assert set(group.permissions.values_list("codename", flat=True)) == before


def test_a_name_with_markup_is_shown_as_text(client: Client, world: World) -> None:
    for address in (
        reverse("admin:jobs"),
        reverse("admin:job", args=[world.running.pk]),
        reverse("admin:job_terminate", args=[world.running.pk]),
    ):
        html = client.get(address).content.decode()
        assert "正在跑的 &lt;作业&gt;" in html
        assert "正在跑的 <作业>" not in html
    preview = client.get(reverse("admin:job", args=[world.awaiting.pk])).content.decode()
    assert "你好 &lt;b&gt;客户&lt;/b&gt;" in preview


def test_language_switched_to_english_is_remembered(client: Client) -> None:
    response = client.post(reverse("set_language"), {"language": "en", "next": "/admin/jobs/"})
    assert response.status_code == 302
    html = client.get("/admin/jobs/").content.decode()
    assert '<html lang="en"' in html
    assert 'value="zh-hans"' in html


def test_dialogs_say_the_exact_words_with_the_numbers_of_now(client: Client, world: World) -> None:
    job = world.running.pk
    cancel = text_of(client.get(reverse("admin:job_cancel", args=[job])))
    # 4 wait; 3 confirmed, 2 in doubt and 1 in flight have left
    assert (
        "不再取新条目，剩余 4 条置为「已放弃」，不可恢复；不撤销已经发出的 6 条。"
        "临时停止请用「暂停」。" in cancel
    )
    terminate = text_of(client.get(reverse("admin:job_terminate", args=[job])))
    assert (
        "立即停止执行进程，可能留下 1 条「已提交未确认」；恢复之前必须先对账；不会自动重发。"
        in terminate
    )
    page = text_of(client.get(reverse("admin:job", args=[job])))
    assert "停止取新条目；已提交的 1 条继续等结果；可随时继续，不会重发已提交的条目。" in page
    assert "返回" in cancel
    assert "返回" in terminate


@pytest.mark.parametrize(
    "address",
    ["/admin/jobs/?q=a%00", "/admin/accounts/?q=%00", "/admin/audit/?kind=%00"],
)
def test_search_with_a_character_no_text_holds_finds_nothing_wrong(
    client: Client, address: str
) -> None:
    assert client.get(address).status_code == 200


def test_category_with_a_code_no_text_holds_opens(client: Client, world: World) -> None:
    address = reverse("admin:job_category", args=[world.running.pk, "other"])
    assert client.get(address + "?code=%00").status_code == 200
    download = client.get(reverse("admin:job_failures_csv", args=[world.running.pk]) + "?code=%00")
    assert download.status_code == 200
    assert b"".join(download.streaming_content)  # type: ignore[attr-defined]


def test_overview_with_many_new_uploads_still_names_the_stopped_job(client: Client) -> None:
    stopped = make_job(status=JobStatus.PAUSED, pause_reason="budget", name="停住的旧作业")
    for _ in range(MAX_LINES):
        make_job(status=JobStatus.AWAITING)
    shown = text_of(client.get(reverse("admin:index")))
    assert stopped.name in shown
    assert f"只列出 {MAX_LINES} 个，共 {MAX_LINES + 1} 个" in shown


def test_stage_dialog_with_a_budget_says_that_it_stops_there(client: Client) -> None:
    job = make_job(
        status=JobStatus.PAUSED,
        pause_reason="stage",
        stages=[1],
        budget_limit=2,
        shards=[ShardSpec(pending=5, confirmed=1)],
    )
    asked = text_of(client.get(reverse("admin:job_stage", args=[job.pk])))
    assert "后面没有检查点" in asked
    assert "用完自动暂停" in asked


def test_timeline_of_a_pause_by_the_system_says_why(client: Client) -> None:
    job = make_job(status=JobStatus.PAUSED, pause_reason="budget")
    Event.objects.create(job=job, kind="job.paused", data={"from": "running", "reason": "budget"})
    shown = text_of(client.get(reverse("admin:audit") + f"?job={job.pk}"))
    assert "已暂停 预算用完" in " ".join(shown.split())


def test_refused_file_counts_its_bad_rows_not_all_rows(client: Client, world: World) -> None:
    world.awaiting.rejected_rows = 3
    world.awaiting.save()
    Rejection.objects.create(job=world.awaiting, row_no=4, code="id_empty", text="ID 为空。")
    shown = text_of(client.get(reverse("admin:job", args=[world.awaiting.pk])))
    assert "（前 1 行，共 1 行）" in shown
