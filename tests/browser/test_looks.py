"""Every page: accessible by axe, no sideways scrolling, light and dark, wide and narrow."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.auth.models import Group, Permission, User
from django.utils import timezone
from playwright.sync_api import Page, expect

from batches.models import Alert, Job
from batches.store.events import add_event
from tests.factories import ShardSpec, items_of, make_account, make_gateway, make_job

from .conftest import Open

pytestmark = pytest.mark.django_db(transaction=True)

Scheme = Literal["light", "dark"]


@pytest.fixture
def addresses(operator: User) -> list[str]:
    """One address of every kind of page, each with something on it, for somebody who may all."""
    User.objects.filter(pk=operator.pk).update(is_superuser=True)
    role = Group.objects.get_or_create(name="值班")[0]
    account = make_account(gateway=make_gateway(name="网关甲"), name="客服甲", throttle=0.5)
    make_account(health="credential", health_note="需要重新扫码")
    make_account(hold_until=timezone.now() + timedelta(hours=1), hold_reason="backoff")
    job = make_job(
        name="双十一会员关怀第 7 批 " + "很长的名称" * 4,
        shards=[
            ShardSpec(pending=9, inflight=1, in_doubt=2, confirmed=7, failed=3, account=account),
            ShardSpec(pending=3, status="paused", reason="breaker"),
        ],
        budget_limit=100,
        stages=[10, 50],
        rate_limit_per_min=30,
    )
    report = {
        "phase": "done",
        "encoding": "gb18030",
        "delimiter": ",",
        "header_row": 1,
        "rows": 4,
        "valid": 3,
        "rejected": 1,
        "shards": 1,
        "accounts_total": 1,
        "accounts": [{"account": "g-1", "name": "客服甲", "items": 3, "shards": 1}],
        "samples": [
            {
                "row_no": 2,
                "account": "g-1",
                "account_name": "客服甲",
                "target": "7881300000000001",
                "content": "你好",
                "tags": [],
            }
        ],
        "by_reason": [
            {"code": "duplicate", "text": "重复。", "params": {}, "count": 1, "example_row": 3}
        ],
        "problems": [],
        "warnings": [{"code": "x", "text": "请核对。", "params": {}}],
        "request": {},
    }
    awaiting = make_job(
        status="awaiting", shards=[ShardSpec(pending=3)], intake=report, rejected_rows=1
    )
    awaiting.rejection_set.create(
        row_no=3,
        code="duplicate",
        column="客户ID",
        value="7881300000000001",
        text="“%(value)s”重复。",
        params={"value": "7881300000000001"},
        fields=["g-1", "7881300000000001", "张三"],
    )
    refused = make_job(
        status="rejected",
        shards=[],
        columns=["甲", "乙"],
        intake=report | {"problems": [{"code": "y", "text": "找不到列。", "params": {}}]},
    )
    preparing = make_job(status="preparing", shards=[], intake={"phase": "reading"})
    paused = make_job(
        status="paused",
        pause_reason="stage",
        stages=[1],
        shards=[ShardSpec(pending=3, confirmed=1)],
    )
    done = make_job(status="completed", shards=[ShardSpec(confirmed=3, failed=1)])
    add_event(kind="job.rate_set", job_id=job.pk, reason="先降速", data={})
    Alert.objects.create(key="a", kind="stuck", job=job, text="卡住了")
    Alert.objects.create(key="b", kind="stuck", job=job, text="过去了", closed_at=timezone.now())
    item = items_of(job, "failed")[0]
    return [
        "/admin/",
        "/admin/jobs/",
        "/admin/jobs/new/",
        f"/admin/jobs/{job.pk}/",
        f"/admin/jobs/{paused.pk}/",
        f"/admin/jobs/{awaiting.pk}/",
        f"/admin/jobs/{refused.pk}/",
        f"/admin/jobs/{preparing.pk}/",
        f"/admin/jobs/{done.pk}/",
        f"/admin/jobs/{job.pk}/shards/",
        f"/admin/jobs/{job.pk}/shards/1/",
        f"/admin/jobs/{job.pk}/items/{item.pk}/",
        f"/admin/jobs/{job.pk}/failures/",
        f"/admin/jobs/{job.pk}/failures/?shard=1",
        f"/admin/jobs/{job.pk}/failures/other/",
        f"/admin/jobs/{job.pk}/cancel/",
        f"/admin/jobs/{job.pk}/terminate/",
        f"/admin/jobs/{job.pk}/budget/",
        f"/admin/jobs/{job.pk}/limits/",
        f"/admin/jobs/{paused.pk}/stage/",
        f"/admin/jobs/{done.pk}/retry/",
        "/admin/reconcile/",
        "/admin/accounts/",
        f"/admin/accounts/{account.pk}/active/",
        f"/admin/accounts/{account.pk}/test/",
        "/admin/audit/",
        "/admin/alerts/",
        "/admin/batches/gateway/",
        f"/admin/batches/gateway/{account.gateway_id}/change/",
        f"/admin/batches/account/{account.pk}/change/",
        "/admin/batches/gateway/add/",
        "/admin/batches/account/add/",
        "/admin/auth/user/",
        "/admin/auth/user/add/",
        f"/admin/auth/user/{operator.pk}/change/",
        "/admin/auth/group/",
        f"/admin/auth/group/{role.pk}/change/",
        "/admin/password_change/",
    ]


#: the rules of axe that ask for colours; the others find the same in light and in dark
COLOUR_RULES = ["color-contrast", "link-in-text-block"]


def _violations(page: Page, *, rules: list[str] | None = None) -> list[str]:
    """By all rules of axe, or by these."""
    if page.evaluate("window.axe === undefined"):
        page.evaluate(Axe().axe_script)
    # without preloading, for which axe copies style sheets into the page against its policy
    options: dict[str, object] = {"preload": False, "resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = {"type": "rule", "values": rules}
    run = "options => axe.run(options).then(results => results.violations)"
    return [
        f"{page.url}: {one['id']}: {node['html'][:160]}"
        for one in page.evaluate(run, options)
        for node in one["nodes"]
    ]


def _ground(page: Page) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def _sideways(page: Page) -> list[str]:
    width, shown = page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    found = [f"{page.url}: {width} px wide in a window of {shown}"] if width > shown else []
    cut = page.locator(".table-card").evaluate_all(
        "cards => cards.filter(card => card.scrollWidth > card.clientWidth).length"
    )
    return found + ([f"{page.url}: a table is cut off"] if cut else [])


@pytest.mark.parametrize(("width", "scheme", "other"), [(1440, "light", "dark"),
                                                        (390, "dark", "light")])  # fmt: skip
def test_pages_pass_axe_and_fit_their_window_in_light_and_dark(
    width: int, scheme: Scheme, other: Scheme, open_page: Open, addresses: list[str]
) -> None:
    """All rules on each page at each width; in the other scheme what depends on colours."""
    page = open_page("/admin/", width=width, scheme=scheme)
    faults: list[str] = []
    for address in addresses:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        response = page.goto(address)
        assert response is not None
        assert response.status == 200, address
        faults += _violations(page) + _sideways(page)
        ground = _ground(page)
        page.emulate_media(color_scheme=other, reduced_motion="reduce")
        assert _ground(page) != ground, f"{address}: {scheme} and {other} look alike"
        faults += [f"{other}: {fault}" for fault in _violations(page, rules=COLOUR_RULES)]
    assert faults == []


def test_pages_in_english_fit_their_window_wide_and_narrow(
    open_page: Open, addresses: list[str]
) -> None:
    page = open_page("/admin/")
    page.locator(".language button").click()
    expect(page.locator("html")).to_have_attribute("lang", "en")
    faults: list[str] = []
    for address in addresses:
        page.goto(address)
        for width in (1440, 390):
            page.set_viewport_size({"width": width, "height": 900})
            faults += _sideways(page)
    assert faults == []


@pytest.mark.parametrize("width", [1440, 390])
def test_sign_in_passes_axe(width: int, open_page: Open) -> None:
    page = open_page("/admin/login/", width=width, signed_in=False)
    assert _violations(page) + _sideways(page) == []


@pytest.mark.parametrize("width", [1440, 390])
def test_refusals_pass_axe(
    width: int, open_page: Open, operator: User, complaints: list[str]
) -> None:
    """409 of a stale page, 422 of a form without its reason, 403 of a verb that is another's."""
    job = make_job(shards=[ShardSpec(pending=3)])
    faults: list[str] = []

    def look(page: Page, heading: str) -> None:
        expect(page.get_by_role("heading", name=heading)).to_be_visible()
        faults.extend(_violations(page) + _sideways(page))

    page = open_page(f"/admin/jobs/{job.pk}/", width=width)
    Job.objects.filter(pk=job.pk).update(version=job.version + 1)
    page.get_by_role("button", name="暂停", exact=True).click()
    look(page, "状态已被他人更改")
    page.goto(f"/admin/jobs/{job.pk}/cancel/")
    page.locator("[name=reason]").fill(" ")
    page.locator("form[action$='/cancel/'] [type=submit]").click()
    expect(page.get_by_text("请填写原因")).to_be_visible()
    look(page, f"取消作业「{job.name}」？")
    operator.user_permissions.remove(Permission.objects.get(codename="cancel_job"))
    page.goto(f"/admin/jobs/{job.pk}/cancel/")
    look(page, "没有权限")
    assert faults == []
    told = [one for one in complaints if "the server responded with a status of 4" in one]
    assert len(told) == 3
    for one in told:
        complaints.remove(one)


def test_open_dialog_passes_axe(open_page: Open) -> None:
    job = make_job(shards=[ShardSpec(pending=3)])
    page = open_page(f"/admin/jobs/{job.pk}/")
    page.get_by_role("link", name="强制终止…").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert _violations(page) == []


def test_theme_is_switched_by_hand_and_remembered(open_page: Open) -> None:
    page = open_page("/admin/", scheme="light")

    light = _ground(page)
    page.locator(".theme-toggle").click()
    dark = _ground(page)
    assert dark != light
    page.goto("/admin/jobs/")
    assert _ground(page) == dark


def test_menu_of_a_phone_opens_and_leads_on(open_page: Open) -> None:
    page = open_page("/admin/", width=390)
    nav = page.get_by_role("navigation", name="主导航")
    expect(nav).to_be_hidden()
    button = page.get_by_role("button", name="菜单")
    button.click()
    expect(button).to_have_attribute("aria-expanded", "true")
    nav.get_by_role("link", name="账号").click()
    expect(page.get_by_role("heading", name="账号", exact=True)).to_be_visible()


def test_language_is_switched_in_the_header_and_stays(open_page: Open) -> None:
    page = open_page("/admin/jobs/")
    page.get_by_role("button", name="English").click()
    expect(page.locator("html")).to_have_attribute("lang", "en")
    assert page.url.endswith("/admin/jobs/")
    page.goto("/admin/audit/")
    expect(page.locator("html")).to_have_attribute("lang", "en")
    page.get_by_role("button", name="中文").click()
    expect(page.locator("html")).to_have_attribute("lang", "zh-hans")


def test_keyboard_alone_reaches_the_content_and_the_first_verb(open_page: Open) -> None:
    job = make_job(shards=[ShardSpec(pending=3)])
    page = open_page(f"/admin/jobs/{job.pk}/")
    page.keyboard.press("Tab")
    expect(page.locator(".skip-to-content-link")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="暂停")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#job-head .badge")).to_have_text("已暂停")


def test_reduced_motion_is_respected(open_page: Open) -> None:
    job = make_job(status="preparing", shards=[], intake={"phase": "reading"})
    page = open_page(f"/admin/jobs/{job.pk}/")
    moving = "getComputedStyle(document.querySelector('.busy-bar i')).animationName"
    assert page.evaluate(moving) == "busy"
    page.emulate_media(reduced_motion="reduce")
    assert page.evaluate(moving) == "none"
