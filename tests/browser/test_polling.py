"""The polled parts in a browser: offline, hidden, selecting, signed out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Request, expect

from batches.models import Job, Shard
from tests.factories import ShardSpec, make_job

from .conftest import Open

pytestmark = pytest.mark.django_db(transaction=True)


def _polls(page: Page) -> Callable[[], int]:
    """How many polls have gone out so far."""
    seen: list[Request] = []
    page.on("request", lambda request: seen.append(request) if "/live/" in request.url else None)
    return lambda: len(seen)


def _pass_seconds(page: Page, seconds: int) -> None:
    """The page's own clock goes on; what it asked for meanwhile comes back."""
    page.clock.run_for(seconds * 1000)
    page.wait_for_load_state("networkidle")


def _watched(open_page: Open, job: Job) -> Page:
    page = open_page("/admin/login/")
    page.clock.install()
    page.goto(f"/admin/jobs/{job.pk}/")
    return page


def test_lost_connection_is_told_and_taken_back(open_page: Open, complaints: list[str]) -> None:
    page = _watched(open_page, make_job(shards=[ShardSpec(pending=3)]))
    told = page.get_by_text("连接中断，以下数据可能已过期")
    expect(told).to_be_hidden()
    page.route("**/live/**", lambda route: route.abort())
    _pass_seconds(page, 4)
    expect(told).to_be_visible()
    page.unroute("**/live/**")
    _pass_seconds(page, 4)
    expect(told).to_be_hidden()
    complaints[:] = [one for one in complaints if "ERR_FAILED" not in one and "htmx" not in one]


def test_server_error_is_told_as_well(open_page: Open, complaints: list[str]) -> None:
    page = _watched(open_page, make_job(shards=[ShardSpec(pending=3)]))
    page.route("**/live/**", lambda route: route.fulfill(status=502, body="bad gateway"))
    _pass_seconds(page, 4)
    expect(page.get_by_text("连接中断，以下数据可能已过期")).to_be_visible()
    expect(page.locator("#part-pending b")).to_have_text("3")
    complaints[:] = [one for one in complaints if "502" not in one]


def test_poll_waits_while_text_is_selected(open_page: Open) -> None:
    page = _watched(open_page, make_job(shards=[ShardSpec(pending=3)]))
    polls = _polls(page)
    _pass_seconds(page, 4)
    assert polls() == 1
    page.locator("#progress-title ~ ul").evaluate(
        "list => document.getSelection().selectAllChildren(list)"
    )
    _pass_seconds(page, 10)
    assert polls() == 1
    page.evaluate("document.getSelection().removeAllRanges()")
    _pass_seconds(page, 4)
    assert polls() == 2


def test_poll_waits_while_the_tab_is_hidden(open_page: Open) -> None:
    page = _watched(open_page, make_job(shards=[ShardSpec(pending=3)]))
    polls = _polls(page)
    page.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
    _pass_seconds(page, 10)
    assert polls() == 0
    page.evaluate("delete document.hidden")
    _pass_seconds(page, 4)
    assert polls() == 1


def test_polling_ends_with_the_job(open_page: Open) -> None:
    job = make_job(shards=[ShardSpec(pending=1)])
    page = _watched(open_page, job)
    polls = _polls(page)
    Shard.objects.filter(job=job).update(pending=0, confirmed=1, status="completed")
    Job.objects.filter(pk=job.pk).update(status="completed", version=1)
    _pass_seconds(page, 4)
    expect(page.locator("#job-head .badge")).to_have_text("已完成")
    before = polls()
    _pass_seconds(page, 20)
    assert polls() == before


def test_lost_session_leads_to_the_sign_in(open_page: Open) -> None:
    job = make_job(shards=[ShardSpec(pending=3)])
    page = _watched(open_page, job)
    page.context.clear_cookies()
    page.clock.run_for(4000)
    expect(page.get_by_label("密码")).to_be_visible()
    assert f"next=/admin/jobs/{job.pk}/" in page.url


def test_focus_stays_on_a_link_over_a_swap(open_page: Open) -> None:
    job = make_job(shards=[ShardSpec(pending=3, failed=1)])
    page = _watched(open_page, job)
    page.locator("#part-failed").focus()
    Shard.objects.filter(job=job).update(pending=2, confirmed=1)
    _pass_seconds(page, 4)
    expect(page.locator("#part-confirmed b")).to_have_text("1")
    expect(page.locator("#part-failed")).to_be_focused()


def test_time_since_the_last_advance_goes_on_counting(open_page: Open) -> None:
    job = make_job(shards=[ShardSpec(pending=3, confirmed=1)])
    page = _watched(open_page, job)
    page.route("**/live/**", lambda route: route.fulfill(status=204))
    page.clock.run_for(90_000)
    expect(page.locator(".figures time")).to_have_text("1 分钟前")
