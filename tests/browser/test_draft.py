"""新建作业 whose sign-in expires while it is filled in: nothing typed is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from playwright.sync_api import Page, expect

from batches.models import Job
from tests.factories import ShardSpec, make_account, make_job

from .conftest import Open

pytestmark = pytest.mark.django_db(transaction=True)
NEW = "/admin/jobs/new/"
PASSWORD = "correct horse battery"
TEXT = "你好 {姓名}\n第二行 <b>"
RESTORED = "已恢复上次未提交的内容，文件需要重新选择"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    make_account(guid="acc-1")
    path = tmp_path / "名单.csv"
    path.write_text("账号,客户ID,姓名\nacc-1,788130001,张三\n")
    return path


@pytest.fixture
def sign_in(operator: User) -> Callable[[Page], None]:
    """Fill in the sign-in page that the browser was led to."""
    operator.set_password(PASSWORD)
    operator.save()

    def sign_in_(page: Page, name: str = operator.username) -> None:
        page.get_by_label("用户名").fill(name)
        page.get_by_label("密码").fill(PASSWORD)
        page.get_by_role("button", name="登录").click()

    return sign_in_


def _fill(page: Page) -> None:
    page.get_by_label("消息内容").fill(TEXT)
    page.get_by_label("作业名称").fill("写了一半的")
    page.get_by_text("更多限制：").click()
    page.get_by_label("优先级").fill("7")


def _send(page: Page, file: Path) -> None:
    page.get_by_label("名单文件").set_input_files(file)
    page.get_by_role("button", name="上传并校验").click()


def _kept(page: Page) -> str:
    return str(page.evaluate("JSON.stringify({...sessionStorage, ...localStorage})"))


def test_form_of_an_expired_sign_in_comes_back_and_is_forgotten_once_sent(
    open_page: Open, sign_in: Callable[..., None], file: Path
) -> None:
    page = open_page(NEW)
    note = page.get_by_text(RESTORED)
    _fill(page)
    token = page.locator("form.new-job input[name=csrfmiddlewaretoken]").input_value()
    Session.objects.all().delete()
    _send(page, file)
    sign_in(page)
    expect(note).to_be_visible()
    expect(page.get_by_label("消息内容")).to_have_value(TEXT)
    expect(page.get_by_label("作业名称")).to_have_value("写了一半的")
    # in a part that is folded by itself
    expect(page.get_by_label("优先级")).to_be_visible()
    expect(page.get_by_label("优先级")).to_have_value("7")
    expect(page.locator("[data-file-name]")).to_have_text("未选择文件，也可以拖到这里")
    kept = _kept(page)
    assert "写了一半的" in kept
    for secret in (token, PASSWORD, "csrf", "名单.csv", "788130001"):
        assert secret not in kept
    assert not Job.objects.exists()
    _send(page, file)
    expect(page.get_by_role("heading", name="正在导入")).to_be_visible()
    job = Job.objects.get()
    assert (job.name, job.params, job.priority) == ("写了一半的", {"content": TEXT}, 7)
    assert "写了一半的" not in _kept(page)
    page.goto(NEW)
    expect(note).to_be_hidden()
    expect(page.get_by_label("作业名称")).to_have_value("")


def test_restored_form_is_given_up_by_its_button(open_page: Open) -> None:
    page = open_page(NEW)
    page.get_by_role("radio", name="批量打标签").check()
    page.get_by_label("标签 ID").fill("101")
    page.goto("/admin/jobs/")
    page.goto(NEW)
    expect(page.get_by_text(RESTORED)).to_be_visible()
    expect(page.get_by_label("标签 ID")).to_have_value("101")
    page.get_by_role("button", name="放弃恢复的内容").click()
    expect(page.get_by_text(RESTORED)).to_be_hidden()
    expect(page.get_by_role("radio", name="发送文本消息")).to_be_checked()
    expect(page.get_by_label("标签 ID")).to_be_hidden()
    expect(page.get_by_label("消息内容")).to_be_visible()
    page.reload()
    expect(page.get_by_text(RESTORED)).to_be_hidden()
    expect(page.get_by_label("标签 ID")).to_have_value("")


def test_form_filled_from_a_job_wins_over_what_was_kept(open_page: Open) -> None:
    job = make_job(name="模板", status="completed", shards=[ShardSpec(confirmed=1)])
    page = open_page(NEW)
    page.get_by_label("作业名称").fill("写了一半的")
    page.goto(f"{NEW}?from={job.pk}")
    expect(page.get_by_label("作业名称")).to_have_value("模板 (2)")
    expect(page.get_by_text(RESTORED)).to_be_hidden()


def test_form_filled_from_a_job_and_changed_comes_back_after_the_sign_in(
    open_page: Open, sign_in: Callable[..., None], file: Path
) -> None:
    job = make_job(name="模板", status="completed", shards=[ShardSpec(confirmed=1)])
    page = open_page(f"{NEW}?from={job.pk}")
    page.get_by_label("作业名称").fill("改过的")
    Session.objects.all().delete()
    _send(page, file)
    sign_in(page)
    expect(page.get_by_text(RESTORED)).to_be_visible()
    expect(page.get_by_text("设置取自作业「模板」")).to_be_visible()
    expect(page.get_by_label("作业名称")).to_have_value("改过的")
    # asked for once more, it is as the job was
    page.goto(f"{NEW}?from={job.pk}")
    expect(page.get_by_label("作业名称")).to_have_value("模板 (2)")


def test_form_with_a_fault_shows_what_was_sent(
    open_page: Open, file: Path, complaints: list[str]
) -> None:
    page = open_page(NEW)
    _fill(page)
    page.get_by_label("作业速率上限").fill("快")
    _send(page, file)
    expect(page.get_by_text("“作业速率上限”请填整数")).to_be_visible()
    expect(page.get_by_text(RESTORED)).to_be_hidden()
    expect(page.get_by_label("作业名称")).to_have_value("写了一半的")
    # the browser itself notes the 422
    complaints[:] = [one for one in complaints if "422" not in one]


def test_next_person_in_the_same_window_finds_an_empty_form(
    open_page: Open, sign_in: Callable[..., None]
) -> None:
    User.objects.create_superuser("somebody", password=PASSWORD)
    page = open_page(NEW)
    _fill(page)
    Session.objects.all().delete()
    page.goto(NEW)
    sign_in(page, "somebody")
    expect(page.get_by_label("作业名称")).to_have_value("")
    expect(page.get_by_text(RESTORED)).to_be_hidden()
    assert "写了一半的" not in _kept(page)
