"""预算告警: the tile's number, and the list that it leads to."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from batches.models import Job
from batches.selectors.jobs import PAGE_SIZE
from tests.factories import ShardSpec, make_account, make_job

pytestmark = pytest.mark.django_db


def _job(used: int, limit: int | None, **columns: Any) -> Job:
    job = make_job(shards=[ShardSpec(pending=1, account=make_account())], **columns)
    Job.objects.filter(pk=job.pk).update(budget_limit=limit, budget_used=used)
    return job


def _tile(client: Client) -> tuple[int, str]:
    html = client.get(reverse("admin:index")).content.decode()
    found = re.search(r'id="tile-budget"[^>]*href="([^"]+)"><b>([\d,]+)</b>', html)
    assert found
    return int(found[2].replace(",", "")), found[1]


def _listed(client: Client) -> tuple[list[int], int]:
    """The jobs that the tile's list shows, and the number on its tab."""
    response = client.get(_tile(client)[1])
    assert response.context["tab"] == "budget"
    (tab,) = [tab for tab in response.context["tabs"] if tab.key == "budget"]
    return [row.job.pk for row in response.context["rows"]], tab.count


def test_tile_and_list_agree_on_jobs_whose_budget_is_gone_or_nearly(client: Client) -> None:
    wanted = [
        _job(90, 100),
        _job(9, 10),
        _job(100, 100),
        _job(4, 4, status="paused", pause_reason="budget"),
        # raised already, but nobody has let it go on
        _job(4, 400, status="paused", pause_reason="budget"),
        _job(95, 100, status="paused", pause_reason="operator"),
    ]
    for used, limit, columns in (
        (89, 100, {}),
        (8, 9, {}),
        (0, 1, {}),
        (5, None, {}),
        (5, 100, {"status": "paused", "pause_reason": "operator"}),
        (100, 100, {"status": "completed"}),
        (100, 100, {"status": "cancelled"}),
        (100, 100, {"status": "terminated"}),
        (0, 100, {"status": "awaiting"}),
    ):
        _job(used, limit, **columns)
    listed, count = _listed(client)
    assert sorted(listed) == [job.pk for job in wanted]
    assert _tile(client)[0] == count == len(wanted)


def test_tile_without_such_jobs_is_quiet(client: Client) -> None:
    _job(1, 100)
    html = client.get(reverse("admin:index")).content.decode()
    assert 'id="tile-budget" class="tile tone-muted"' in html
    assert _tile(client)[0] == 0
    assert _listed(client) == ([], 0)


def test_more_than_a_page_goes_on_with_the_same_jobs(client: Client) -> None:
    for _ in range(PAGE_SIZE + 1):
        _job(10, 10)
        _job(1, 10)
    response = client.get(_tile(client)[1])
    further = client.get(reverse("admin:jobs") + response.context["next_page"])
    rows = [*response.context["rows"], *further.context["rows"]]
    assert len({row.job.pk for row in rows}) == _tile(client)[0] == PAGE_SIZE + 1


def test_overview_is_sent_again_once_a_budget_runs_low(client: Client) -> None:
    job = _job(89, 100)
    mark = client.get(reverse("admin:index")).context["overview"].mark
    poll = {"path": reverse("admin:index"), "data": {"v": mark}, "headers": {"HX-Request": "true"}}
    assert client.get(**poll).status_code == 204
    Job.objects.filter(pk=job.pk).update(budget_used=90)
    assert client.get(**poll).status_code == 200
