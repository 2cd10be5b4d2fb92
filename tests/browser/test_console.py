"""An operator's day: create, watch, pause, cancel, drill down, reconcile."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from batches.models import Event, Job, Shard
from batches.services.submissions import run_intake
from tests.factories import ShardSpec, items_of, make_account, make_job

from .conftest import Open

pytestmark = pytest.mark.django_db(transaction=True)


def test_sign_in_by_form_shows_the_overview_and_sign_out_ends_it(open_page: Open) -> None:
    from django.contrib.auth.models import User

    User.objects.create_superuser("chief", password="correct horse battery")
    page = open_page("/admin/", signed_in=False)
    page.get_by_label("用户名").fill("chief")
    page.get_by_label("密码").fill("correct horse battery")
    page.get_by_role("button", name="登录").click()
    expect(page.get_by_role("heading", name="总览")).to_be_visible()
    page.locator(".user-menu summary").click()
    page.get_by_role("button", name="退出登录").click()
    page.goto("/admin/jobs/")
    expect(page.get_by_label("用户名")).to_be_visible()


def test_job_created_by_upload_is_previewed_and_started(open_page: Open, tmp_path: Path) -> None:
    make_account(guid="acc-1", name="客服甲")
    file = tmp_path / "名单.csv"
    file.write_text("账号,客户ID,姓名\nacc-1,788130001,张三\nacc-1,788130002,李四\n")
    page = open_page("/admin/jobs/new/")
    expect(page.get_by_label("标签 ID")).to_be_hidden()
    page.get_by_role("radio", name="批量打标签").check()
    expect(page.get_by_label("标签 ID")).to_be_visible()
    page.get_by_role("radio", name="发送文本消息").check()
    page.get_by_label("消息内容").fill("你好 {姓名}")
    page.get_by_label("名单文件").set_input_files(file)
    expect(page.locator("[data-file-name]")).to_have_text("名单.csv")
    page.get_by_label("作业名称").fill("浏览器里建的")
    page.get_by_role("button", name="上传并校验").dblclick()
    expect(page.get_by_role("heading", name="正在导入")).to_be_visible()
    job = Job.objects.get()
    assert run_intake(job.pk)
    # the page finds out by itself
    expect(page.get_by_role("heading", name="预览确认")).to_be_visible()
    expect(page.get_by_text("你好 张三")).to_be_visible()
    page.get_by_role("button", name="确认并启动 2 条").click()
    expect(page.locator("#job-head .badge")).to_have_text("运行中")
    assert Job.objects.get().status == "running"


def test_running_job_is_watched_without_a_reload_and_keeps_what_is_typed(open_page: Open) -> None:
    job = make_job(shards=[ShardSpec(pending=10)], rate_limit_per_min=30)
    page = open_page(f"/admin/jobs/{job.pk}/")
    expect(page.locator("#part-pending b")).to_have_text("10")
    page.get_by_label("作业速率上限").fill("77")
    page.evaluate("window.stillTheSame = true")
    Shard.objects.filter(job=job).update(pending=6, confirmed=4)
    expect(page.locator("#part-confirmed b")).to_have_text("4")
    expect(page.get_by_label("作业速率上限")).to_have_value("77")
    assert page.evaluate("window.stillTheSame") is True
    Job.objects.filter(pk=job.pk).update(status="paused", pause_reason="budget", version=9)
    expect(page.locator("#job-head .badge")).to_have_text("已暂停")
    expect(page.get_by_label("作业速率上限")).to_have_value("77")


def test_pause_pressed_twice_is_one_pause_and_continues(open_page: Open) -> None:
    job = make_job(shards=[ShardSpec(pending=10)])
    page = open_page(f"/admin/jobs/{job.pk}/")
    page.get_by_role("button", name="暂停").dblclick()
    expect(page.locator("#job-head .badge")).to_have_text("已暂停")
    expect(page.get_by_role("status").filter(has_text="可随时继续")).to_be_visible()
    assert Event.objects.filter(job=job).count() == 1
    page.get_by_role("button", name="继续").click()
    expect(page.locator("#job-head .badge")).to_have_text("运行中")


def test_cancel_asks_in_a_dialog_that_can_be_left_and_needs_a_reason(open_page: Open) -> None:
    job = make_job(name="要取消的", shards=[ShardSpec(pending=1234, confirmed=6)])
    page = open_page(f"/admin/jobs/{job.pk}/")
    page.get_by_role("link", name="取消作业…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("剩余 1,234 条置为「已放弃」，不可恢复；不撤销已经发出的 6 条。")
    expect(page.get_by_label("原因（必填）")).to_be_focused()
    dialog.get_by_role("button", name="返回").click()
    expect(dialog).to_have_count(0)
    page.get_by_role("link", name="取消作业…").click()
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.get_by_role("link", name="取消作业…").click()
    dialog.get_by_role("button", name="确认取消作业").click()
    expect(dialog).to_be_visible()
    assert Job.objects.get().status == "running"
    page.get_by_label("原因（必填）").fill("发错名单")
    dialog.get_by_role("button", name="确认取消作业").click()
    expect(page.locator("#job-head .badge")).to_have_text(re.compile("取消"))
    assert Event.objects.filter(job=job, reason="发错名单").exists()


def test_dialog_follows_the_numbers_while_it_is_open(open_page: Open) -> None:
    job = make_job(shards=[ShardSpec(pending=10)])
    page = open_page(f"/admin/jobs/{job.pk}/")
    page.get_by_role("link", name="取消作业…").click()
    page.get_by_label("原因（必填）").fill("打到一半")
    Shard.objects.filter(job=job).update(pending=7, confirmed=3)
    expect(page.get_by_role("dialog")).to_contain_text("剩余 7 条")
    expect(page.get_by_label("原因（必填）")).to_have_value("打到一半")


def test_terminate_needs_the_name_typed_exactly(open_page: Open) -> None:
    job = make_job(name="要终止的", shards=[ShardSpec(pending=3)])
    page = open_page(f"/admin/jobs/{job.pk}/")
    page.get_by_role("link", name="强制终止…").click()
    page.get_by_label("原因（必填）").fill("出事了")
    name = page.get_by_label("请输入作业名称")
    name.fill("要终止")
    page.get_by_role("button", name="确认强制终止").click()
    assert name.evaluate("field => field.validationMessage") == "与作业名称不一致"
    name.fill("要终止的")
    page.get_by_role("button", name="确认强制终止").click()
    expect(page.locator("#job-head .badge")).to_have_text(re.compile("终止"))


def test_failures_are_drilled_down_from_the_bar_to_the_item_and_retried(open_page: Open) -> None:
    job = make_job(
        status="completed",
        shards=[ShardSpec(confirmed=5, failed=3, category="rate_limited", code="45009")],
    )
    page = open_page(f"/admin/jobs/{job.pk}/")
    page.locator("svg.bar a rect.part-failed").click()
    page.get_by_role("link", name="触发限流").click()
    page.get_by_role("checkbox", name="选择第 7 行").check()
    expect(page.locator("[data-checked-count]")).to_have_text("1")
    page.get_by_role("link", name="t6").click()
    expect(page.get_by_role("heading", name="第 7 行 · t6")).to_be_visible()
    page.get_by_role("link", name="重试这一条…").click()
    page.get_by_role("dialog").get_by_role("button", name="重试 1 条").click()
    expect(page.locator("#job-head .badge")).to_have_text("运行中")
    assert [item.target for item in items_of(job, "pending")] == ["t6"]


def test_job_that_used_up_its_budget_is_raised_with_a_reason_and_goes_on(open_page: Open) -> None:
    job = make_job(
        status="paused",
        pause_reason="budget",
        budget_limit=4,
        shards=[ShardSpec(confirmed=4, pending=6)],
    )
    page = open_page(f"/admin/jobs/{job.pk}/")
    expect(page.locator("#job-head")).to_contain_text("预算用完")
    expect(page.get_by_role("button", name="继续")).to_have_count(0)
    page.locator("#do-budget").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("新的预算（累计发送条数）").fill("8")
    dialog.get_by_label(re.compile("原因")).fill("主管同意再发四条")
    dialog.get_by_role("button", name="提高预算").click()
    expect(page.locator("#job-head .badge")).to_have_text("运行中")
    expect(page.get_by_text("主管同意再发四条").first).to_be_visible()
    job.refresh_from_db()
    assert (job.budget_limit, job.budget_used, job.status) == (8, 4, "running")


def test_doubts_are_marked_by_selection(open_page: Open) -> None:
    job = make_job(shards=[ShardSpec(in_doubt=3)])
    page = open_page("/admin/reconcile/")
    delivered = page.get_by_role("button", name="标记已送达")
    expect(delivered).to_be_disabled()
    page.get_by_role("checkbox", name="全选本页").check()
    page.get_by_label("核对依据").fill("聊天记录里有")
    delivered.click()
    expect(page.get_by_text("已把 3 条标记为已送达")).to_be_visible()
    assert len(items_of(job, "confirmed")) == 3


def test_stale_tab_is_told_and_led_to_the_fresh_page(
    open_page: Open, complaints: list[str]
) -> None:
    job = make_job(shards=[ShardSpec(pending=3)])
    page = open_page(f"/admin/jobs/{job.pk}/")
    Job.objects.filter(pk=job.pk).update(version=job.version + 1)
    page.get_by_role("button", name="暂停").click()
    expect(page.get_by_role("heading", name="状态已被他人更改")).to_be_visible()
    page.get_by_role("link", name="查看最新状态").click()
    expect(page.locator("#job-head .badge")).to_have_text("运行中")
    # the browser itself notes the 409
    complaints[:] = [one for one in complaints if "409" not in one]
