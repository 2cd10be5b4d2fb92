"""The polled parts: nothing sent where nothing changed, and no login page inside a job page."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from batches.models import Account, Event, Job, JobMinute, Shard
from batches.store.events import add_event
from tests.factories import ShardSpec, make_job, make_user

from .conftest import World

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}


def _poll(client: Client, job: Job, **query: Any) -> Any:
    return client.get(reverse("admin:job_live", args=[job.pk]), query, headers=HTMX)


def _mark(client: Client, job: Job) -> str:
    return client.get(reverse("admin:job", args=[job.pk])).context["mark"]


def test_job_polled_unchanged_is_204_and_after_progress_200(client: Client, world: World) -> None:
    job = world.running
    mark = _mark(client, job)
    assert _poll(client, job, v=mark).status_code == 204
    Shard.objects.filter(job=job).update(pending=4, confirmed=4)
    response = _poll(client, job, v=mark, n=job.version, s=job.status)
    assert response.status_code == 200
    html = response.content.decode()
    assert f"v={response.context['mark']}" in html
    assert 'hx-trigger="every 3s"' in html
    assert "job-head" not in html


def test_job_polled_after_an_event_is_200(client: Client, world: World) -> None:
    mark = _mark(client, world.running)
    add_event(kind="job.rate_set", job_id=world.running.pk, data={})
    assert _poll(client, world.running, v=mark).status_code == 200


def test_job_polled_after_a_change_of_status_brings_heading_and_rate_form(
    client: Client, world: World
) -> None:
    job = world.running
    mark = _mark(client, job)
    client.post(reverse("admin:job_pause", args=[job.pk]), {"version": job.version})
    html = _poll(client, job, v=mark, n=job.version, s="running").content.decode()
    assert 'id="job-head" hx-swap-oob="true"' in html
    assert 'id="rate-form"' in html
    assert reverse("admin:job_resume", args=[job.pk]) in html


def test_job_at_its_end_comes_without_a_trigger(client: Client, world: World) -> None:
    html = _poll(client, world.completed, s="completed").content.decode()
    assert 'id="live"' in html
    assert "hx-trigger" not in html


@pytest.mark.parametrize("known", ["preparing", "awaiting"])
def test_import_that_ended_reloads_the_page(known: str, client: Client, world: World) -> None:
    job = {"preparing": world.rejected, "awaiting": world.running}[known]
    response = _poll(client, job, s=known)
    assert response.status_code == 204
    assert response.headers["HX-Refresh"] == "true"


def test_import_polled_shows_its_progress(client: Client, world: World) -> None:
    html = _poll(client, world.preparing, s="preparing").content.decode()
    assert "20,000" in html
    assert 'hx-trigger="every 2s"' in html


@pytest.mark.parametrize("page", ["job", "overview"])
def test_poll_of_a_lost_session_reloads_instead_of_showing_the_sign_in(
    page: str, world: World
) -> None:
    address = reverse("admin:index")
    if page == "job":
        address = reverse("admin:job_live", args=[world.running.pk])
    response = Client().get(address, headers=HTMX)
    assert response.status_code == 204
    assert response.headers["HX-Refresh"] == "true"
    assert response.content == b""


def test_overview_polled_unchanged_is_204_and_after_progress_200(
    client: Client, world: World
) -> None:
    mark = client.get(reverse("admin:index")).context["overview"].mark
    assert client.get(reverse("admin:index"), {"v": mark}, headers=HTMX).status_code == 204
    Shard.objects.filter(job=world.running).update(pending=4, confirmed=4)
    response = client.get(reverse("admin:index"), {"v": mark}, headers=HTMX)
    assert response.status_code == 200
    assert "<html" not in response.content.decode()


def test_overview_counts_what_waits_for_a_person(client: Client, world: World) -> None:
    seen = client.get(reverse("admin:index")).context["overview"]
    assert seen.running == 1
    assert seen.in_doubt == 2
    names = {line.job.pk for line in seen.lines}
    assert {world.paused.pk, world.awaiting.pk, world.rejected.pk} <= names
    assert world.completed.pk not in names
    assert seen.attention == len(seen.lines)


def test_segments_of_the_bar_sum_to_the_total_and_stay_visible(client: Client) -> None:
    job = make_job(shards=[ShardSpec(confirmed=1, in_doubt=1, failed=1, pending=997)])
    live = client.get(reverse("admin:job", args=[job.pk])).context["live"]
    assert sum(part.count for part in live.segments) == live.progress.total == 1000
    assert sum(part.width for part in live.segments) == 1000
    assert all(part.width >= 7 for part in live.segments if part.count)
    assert all(part.width == 0 for part in live.segments if not part.count)


def test_shards_that_are_stuck_come_first_and_slices_that_wait_their_turn_do_not(
    client: Client,
) -> None:
    long_ago = timezone.now() - timedelta(minutes=20)
    job = make_job(
        shards=[ShardSpec(pending=3, confirmed=1) for _ in range(4)], started_at=long_ago
    )
    _first, second, third, fourth = job.shards.order_by("ordinal")
    # the second shard's account does nothing; the fourth is a slice of the third's account
    Shard.objects.filter(pk__in=[second.pk, fourth.pk]).update(last_advanced_at=long_ago)
    Shard.objects.filter(pk=fourth.pk).update(account=third.account)
    live = client.get(reverse("admin:job", args=[job.pk])).context["live"]
    assert [(row.ordinal, row.stuck) for row in live.shards.rows] == [
        (2, True),
        (1, False),
        (3, False),
        (4, False),
    ]
    Account.objects.filter(pk=second.account_id).update(
        hold_until=timezone.now() + timedelta(minutes=1), hold_reason="backoff"
    )
    assert client.get(reverse("admin:index")).context["overview"].stuck == 0


def test_dialog_asked_by_htmx_is_a_fragment_whose_numbers_alone_are_polled(
    client: Client, world: World
) -> None:
    address = reverse("admin:job_cancel", args=[world.running.pk])
    dialog = client.get(address, headers=HTMX).content.decode()
    assert dialog.lstrip().startswith("<dialog")
    assert f'hx-get="{address}?part=facts"' in dialog
    facts = client.get(address, {"part": "facts"}, headers=HTMX).content.decode()
    assert "<form" not in facts
    assert "hx-trigger" in facts


def test_number_of_events_on_the_page_is_bounded(client: Client, world: World) -> None:
    for _ in range(30):
        add_event(kind="job.rate_set", job_id=world.running.pk, data={})
    assert Event.objects.filter(job=world.running).count() == 30
    live = client.get(reverse("admin:job", args=[world.running.pk])).context["live"]
    assert len(live.events) == 8


def test_poll_by_a_viewer_offers_no_verb(sign_in: Callable[..., Client], world: World) -> None:
    html = _poll(sign_in(), world.running).content.decode()
    assert "csrfmiddlewaretoken" not in html


def test_minutes_of_a_job_stand_as_a_chart_and_as_a_table(client: Client) -> None:
    client.force_login(make_user("view_job"))
    job = make_job(shards=[ShardSpec(pending=3, confirmed=7, failed=2, in_doubt=1)])
    JobMinute.objects.create(
        job=job,
        minute=timezone.now().replace(second=0, microsecond=0),
        sent=9,
        confirmed=7,
        failed=2,
        in_doubt=1,
    )
    page = client.get(f"/admin/jobs/{job.pk}/").content.decode()
    chart = page[page.index('class="minutes"') : page.index('id="minute-table"')]
    for part in ("confirmed", "underway", "in_doubt", "failed"):
        assert f"part-{part}" in chart
    assert chart.count("<rect") == 4
    table = page[page.index('id="minute-table"') :]
    cells = re.findall(r'<td class="num">(\d+)</td>', table[: table.index("</table>")])
    assert cells == ["7", "1", "1", "2"]
