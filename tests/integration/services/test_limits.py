"""Budget, rate, checkpoints and single shards."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from batches.domain.errors import InvalidInputError, NotAllowedError, WrongStateError
from batches.domain.limits import NUMBER_MAX, budget_problems, rate_problems
from batches.domain.states import JobStatus, PauseReason
from batches.models import Event, Job
from batches.services import jobs
from tests.factories import ShardSpec, make_job, make_user

pytestmark = pytest.mark.django_db


def _used_up(**columns: object) -> Job:
    return make_job(
        status=JobStatus.PAUSED,
        pause_reason=PauseReason.BUDGET,
        budget_limit=3,
        shards=[ShardSpec(pending=4, confirmed=3)],
        **columns,
    )


def test_raise_budget_records_before_and_after() -> None:
    job = _used_up()
    fresh = jobs.raise_budget(job_id=job.pk, actor=None, to=5, reason="效果好")
    assert (fresh.status, fresh.budget_limit, fresh.budget_used) == ("paused", 5, 3)
    event = Event.objects.get(job=job)
    assert (event.kind, event.reason) == ("job.budget_raised", "效果好")
    assert event.data == {
        "before": {"budget_limit": 3},
        "after": {"budget_limit": 5},
        "used": 3,
    }


@pytest.mark.parametrize(
    ("to", "message"),
    [
        (2, "预算 2 低于已经用掉的 3 条"),
        (3, "新预算 3 必须高于现在的 3"),
        (-1, "低于已经用掉的"),
        (NUMBER_MAX + 1, f"1 到 {NUMBER_MAX}"),
    ],
)
def test_raise_budget_to_an_impossible_number_is_refused(to: int, message: str) -> None:
    job = _used_up()
    with pytest.raises(InvalidInputError, match=message):
        jobs.raise_budget(job_id=job.pk, actor=None, to=to, reason="r")
    assert Job.objects.get(pk=job.pk).budget_limit == 3


def test_raise_budget_of_an_unlimited_job_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="没有预算上限"):
        jobs.raise_budget(job_id=make_job().pk, actor=None, to=5, reason="r")


def test_raise_budget_and_resume_goes_on_in_one_act() -> None:
    job = _used_up()
    fresh = jobs.raise_budget(job_id=job.pk, actor=None, to=7, reason="效果好", resume=True)
    assert (fresh.status, fresh.pause_reason, fresh.budget_limit) == ("running", "", 7)
    kinds = Event.objects.filter(job=job).order_by("id").values_list("kind", flat=True)
    assert list(kinds) == ["job.budget_raised", "job.resumed"]


def test_raise_budget_and_resume_leaves_a_persons_pause_alone() -> None:
    job = make_job(status=JobStatus.PAUSED, pause_reason="operator", budget_limit=5)
    fresh = jobs.raise_budget(job_id=job.pk, actor=None, to=7, reason="r", resume=True)
    assert (fresh.status, fresh.budget_limit) == ("paused", 7)


def test_raise_budget_and_resume_without_operating_changes_nothing() -> None:
    job = _used_up()
    with pytest.raises(NotAllowedError):
        jobs.raise_budget(
            job_id=job.pk, actor=make_user("approve_job"), to=7, reason="r", resume=True
        )
    assert Job.objects.get(pk=job.pk).budget_limit == 3


@pytest.mark.parametrize("per_min", [0, -5])
def test_set_rate_below_one_is_refused(per_min: int) -> None:
    job = make_job(rate_limit_per_min=60)
    with pytest.raises(InvalidInputError, match="至少为每分钟 1 条"):
        jobs.set_rate(job_id=job.pk, actor=None, per_min=per_min)
    assert Job.objects.get(pk=job.pk).rate_limit_per_min == 60


@pytest.mark.parametrize("number", [0, NUMBER_MAX + 1])
def test_limits_are_the_same_at_creation_and_while_it_runs(number: int) -> None:
    job = make_job(rate_limit_per_min=60, budget_limit=5)
    with pytest.raises(InvalidInputError) as refused:
        jobs.set_rate(job_id=job.pk, actor=None, per_min=number)
    assert refused.value.problems == tuple(rate_problems(number))
    with pytest.raises(InvalidInputError) as refused:
        jobs.raise_budget(job_id=job.pk, actor=None, to=NUMBER_MAX + 1, reason="试试")
    assert refused.value.problems == tuple(budget_problems(NUMBER_MAX + 1))
    jobs.set_rate(job_id=job.pk, actor=None, per_min=NUMBER_MAX)
    jobs.raise_budget(job_id=job.pk, actor=None, to=NUMBER_MAX, reason="试试")


def test_set_rate_higher_does_not_wait_for_the_old_pace() -> None:
    far = timezone.now() + timedelta(seconds=59)
    job = make_job(rate_limit_per_min=1, rate_at=far)
    fresh = jobs.set_rate(job_id=job.pk, actor=None, per_min=600)
    assert fresh.rate_limit_per_min == 600
    assert fresh.rate_at is not None
    assert fresh.rate_at < timezone.now() + timedelta(seconds=1)


def test_set_rate_lower_never_brings_the_next_send_forward() -> None:
    soon = timezone.now() + timedelta(seconds=2)
    job = make_job(rate_limit_per_min=30, rate_at=soon)
    fresh = jobs.set_rate(job_id=job.pk, actor=None, per_min=1)
    assert fresh.rate_at == soon


def test_set_rate_to_none_lifts_the_ceiling() -> None:
    job = make_job(rate_limit_per_min=1, rate_at=timezone.now())
    fresh = jobs.set_rate(job_id=job.pk, actor=None, per_min=None)
    assert (fresh.rate_limit_per_min, fresh.rate_at) == (None, None)
    assert Event.objects.get(job=job).data["before"] == {"rate_limit_per_min": 1}


def test_confirm_stage_goes_on_to_the_next_checkpoint() -> None:
    job = make_job(
        status=JobStatus.PAUSED,
        pause_reason=PauseReason.STAGE,
        stages=[2, 4, 6],
        stages_passed=1,
        budget_used=4,
    )
    fresh = jobs.confirm_stage(job_id=job.pk, actor=None)
    assert (fresh.status, fresh.stages_passed) == ("running", 2)
    assert Event.objects.get(job=job).data["stage"] == 4


@pytest.mark.parametrize(
    ("used", "passed"), [(1, 1), (2, 1), (4, 2), (6, 3)], ids=["refunded", "at", "later", "all"]
)
def test_confirm_stage_passes_all_that_is_reached(used: int, passed: int) -> None:
    job = make_job(
        status=JobStatus.PAUSED,
        pause_reason=PauseReason.STAGE,
        stages=[2, 4, 6],
        budget_used=used,
    )
    assert jobs.confirm_stage(job_id=job.pk, actor=None).stages_passed == passed


def test_confirm_stage_of_a_job_paused_for_something_else_is_refused() -> None:
    job = make_job(status=JobStatus.PAUSED, pause_reason="operator", stages=[2])
    with pytest.raises(WrongStateError, match="没有停在放量检查点"):
        jobs.confirm_stage(job_id=job.pk, actor=None)


def test_pause_shard_stops_that_one_and_resume_goes_on() -> None:
    job = make_job(shards=[ShardSpec(pending=1), ShardSpec(pending=1)])
    fresh = jobs.pause_shard(job_id=job.pk, ordinal=2, actor=None, reason="这个账号先停")
    first, second = job.shards.order_by("ordinal")
    assert (first.status, second.status, second.reason) == ("running", "paused", "operator")
    assert (fresh.status, fresh.version) == ("running", job.version + 1)
    event = Event.objects.get(job=job)
    assert (event.kind, event.shard_ordinal) == ("shard.paused", 2)
    jobs.resume_shard(job_id=job.pk, ordinal=2, actor=None)
    second.refresh_from_db()
    assert (second.status, second.reason) == ("running", "")


@pytest.mark.parametrize("status", ["paused", "completed", "failed", "cancelled"])
def test_pause_shard_that_does_not_run_is_refused(status: str) -> None:
    job = make_job(shards=[ShardSpec(confirmed=1, status=status)])
    with pytest.raises(WrongStateError, match="1 号分片现在是"):
        jobs.pause_shard(job_id=job.pk, ordinal=1, actor=None)


@pytest.mark.parametrize("status", ["pending", "running", "completed", "failed", "cancelled"])
def test_resume_shard_that_is_not_paused_is_refused(status: str) -> None:
    job = make_job(shards=[ShardSpec(confirmed=1, status=status)])
    with pytest.raises(WrongStateError, match="只有已暂停的可以"):
        jobs.resume_shard(job_id=job.pk, ordinal=1, actor=None)
    assert job.shards.get().status == status


def test_pause_shard_that_does_not_exist_says_so() -> None:
    with pytest.raises(InvalidInputError, match="没有 9 号分片"):
        jobs.pause_shard(job_id=make_job().pk, ordinal=9, actor=None)


def test_groups_of_a_new_installation_hold_what_they_need() -> None:
    """The migration itself, run again on the permissions that Django makes."""
    from importlib import import_module

    from django.apps import apps
    from django.contrib.auth.models import Group, Permission

    migration = import_module("batches.migrations.0002_groups")
    Group.objects.all().delete()
    before = Permission.objects.count()
    with connection.schema_editor() as editor:
        migration.make_groups(apps, editor)
    assert Permission.objects.count() == before, "names differ from Django's own"
    held = {
        group.name: set(group.permissions.values_list("codename", flat=True))
        for group in Group.objects.all()
    }
    assert set(held) == {"观察员", "运营", "主管"}
    assert held["观察员"]
    assert all(name.startswith("view_") for name in held["观察员"])
    assert held["运营"] - held["观察员"] == {"operate_job", "cancel_job", "reconcile_item"}
    extra = held["主管"] - held["运营"]
    assert {"approve_job", "terminate_job", "add_account", "change_gateway"} <= extra
    assert not {"change_item", "change_job", "delete_event", "add_event"} & held["主管"]


def test_groups_migration_ran_before_djangos_own_permissions() -> None:
    from django.contrib.auth.models import Permission

    found = Permission.objects.filter(codename="operate_job", content_type__app_label="batches")
    assert found.count() == 1
