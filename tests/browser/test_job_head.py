"""The head of the job page on a phone: long names leave room for the job itself."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from tests.factories import ShardSpec, make_account, make_job

from .conftest import Open

pytestmark = pytest.mark.django_db(transaction=True)
PHONE = {"width": 390, "height": 844}


@pytest.mark.parametrize("name", ["双十一会员关怀" * 28, "X" * 200])
def test_long_names_take_less_than_a_third_of_a_phone_and_can_be_read_whole(
    name: str, open_page: Open, operator: User
) -> None:
    User.objects.filter(pk=operator.pk).update(first_name="运营" * 40, last_name="负责人" * 30)
    account = make_account(name="客服" * 50)
    job = make_job(
        name=name,
        created_by=operator,
        status="paused",
        pause_reason="breaker",
        shards=[ShardSpec(pending=3, confirmed=1, account=account)],
    )
    page = open_page(f"/admin/jobs/{job.pk}/", width=390)
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    page.evaluate("window.scrollTo(0, 500)")
    covered = page.evaluate(
        """() => { let y = 0;
            while (document.elementFromPoint(195, y)?.closest(".job-head")) y += 1;
            return y; }"""
    )
    assert 0 < covered <= 0.3 * PHONE["height"]
    expect(page.get_by_role("button", name="继续")).to_be_in_viewport()
    expect(page.locator("#job-head .badge")).to_be_in_viewport()
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    heading = page.get_by_role("heading", level=1)
    cut = heading.evaluate("name => name.scrollHeight - name.clientHeight")
    assert cut > 0
    page.get_by_role("button", name="显示全名").click()
    assert heading.evaluate("name => name.getBoundingClientRect().height") > cut
    page.get_by_role("button", name="收起").click()
    expect(page.get_by_role("button", name="显示全名")).to_be_visible()


def test_short_name_offers_nothing_to_unfold(open_page: Open) -> None:
    job = make_job(name="关怀", shards=[ShardSpec(pending=3)])
    page = open_page(f"/admin/jobs/{job.pk}/", width=390)
    expect(page.get_by_role("button", name="暂停")).to_be_visible()
    expect(page.get_by_role("button", name="显示全名")).to_be_hidden()
