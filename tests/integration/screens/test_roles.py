"""The three groups of a new installation against every button of the console, by pressing it."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.apps import apps
from django.contrib.auth.models import Group
from django.db import connection
from django.test import Client
from django.urls import reverse

from batches.admin.urls import screens
from batches.models import Account, Event, Job
from tests.factories import ShardSpec, items_of, make_account, make_job, make_user

from .verb_matrix import MATRIX, job_for, press

pytestmark = pytest.mark.django_db

OPERATOR = {
    "pause", "resume", "confirm", "rate", "limits", "reread", "shard_pause", "shard_resume",
    "cancel", "retry",
}  # fmt: skip
#: group → the verbs of a job that its people may use
MAY = {"观察员": set(), "运营": OPERATOR, "主管": OPERATOR | {"terminate", "stage", "budget"}}


def _somebody(group: str) -> Client:
    """A browser of somebody who is in that group and has nothing else."""
    with connection.schema_editor() as editor:
        import_module("batches.migrations.0002_groups").make_groups(apps, editor)
    user = make_user()
    user.groups.add(Group.objects.get(name=group))
    client = Client()
    client.force_login(user)
    return client


@pytest.mark.parametrize("group", MAY)
@pytest.mark.parametrize("verb", MATRIX)
def test_people_of_a_group_may_use_their_verbs_and_no_other(verb: str, group: str) -> None:
    job = job_for(verb)
    response = press(_somebody(group), verb, job)
    fresh = Job.objects.get(pk=job.pk)
    if verb in MAY[group]:
        assert response.status_code == 303
        assert fresh.status == MATRIX[verb][3]
        assert fresh.version > job.version
        return
    assert response.status_code == 403
    assert (fresh.status, fresh.version) == (job.status, job.version)
    assert not Event.objects.filter(job=job).exists()


@pytest.mark.parametrize(("group", "may"), [("观察员", False), ("运营", True), ("主管", True)])
def test_people_of_a_group_may_settle_doubts_or_not(group: str, may: bool) -> None:
    job = make_job(shards=[ShardSpec(in_doubt=1)])
    item = items_of(job)[0]
    response = _somebody(group).post(
        reverse("admin:reconcile_mark"),
        {"item": f"{job.pk}:{item.pk}", "delivered": "1", "reason": "看到了"},
    )
    assert response.status_code == (303 if may else 403)
    assert bool(items_of(job, "confirmed")) is may


@pytest.mark.parametrize(("group", "may"), [("观察员", False), ("运营", False), ("主管", True)])
def test_people_of_a_group_may_switch_accounts_or_not(group: str, may: bool) -> None:
    account = make_account()
    response = _somebody(group).post(
        reverse("admin:account_active", args=[account.pk]), {"active": "0", "reason": "停用"}
    )
    assert response.status_code == (303 if may else 403)
    assert Account.objects.get(pk=account.pk).is_active is not may


def test_every_verb_of_a_job_is_pressed_here() -> None:
    """An address that takes a job and no page of its own name is a verb."""
    looked_at = {
        "job", "job_live", "job_rejections", "job_shards", "job_shard", "job_item", "job_failures",
        "job_failures_csv", "job_category",
    }  # fmt: skip
    of_job = {
        str(pattern.name)
        for pattern in screens(lambda view: view)
        if "job_id" in pattern.pattern.converters
    }
    assert {name.removeprefix("job_") for name in of_job - looked_at} == set(MATRIX)
