"""For any job: why it does not move, and what to do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone, translation

from batches import queue
from batches.domain.states import JobStatus, PauseReason, ShardStatus
from batches.models import Account, Event, Gateway, Item, Job, Shard
from batches.selectors import reasons
from batches.selectors.why import Why, why_not_moving
from batches.services.jobs import pause_job, pause_shard
from batches.store.trips import tell_uncompiled
from tests.factories import ShardSpec, items_of, make_account, make_job, make_lane, make_user

pytestmark = pytest.mark.django_db


def _why(job: Job, shard: Shard | None = None, **words: Any) -> Why:
    return why_not_moving(Job.objects.get(pk=job.pk), shard, **words)


@pytest.mark.parametrize("status", JobStatus)
def test_why_any_status_is_a_whole_sentence_without_holes(status: JobStatus) -> None:
    for reason in PauseReason if status is JobStatus.PAUSED else [""]:
        job = make_job(
            status=status,
            pause_reason=reason,
            budget_limit=100,
            stages=[5],
            shards=[ShardSpec(pending=1, in_doubt=1, failed=1)],
        )
        why = _why(job)
        assert why.sentence.endswith("。")
        assert "%(" not in str(why)
        assert "None" not in str(why)
        assert why.cure.endswith("。") or why.level in ("ok", "info")


@pytest.mark.parametrize("status", ShardStatus)
def test_why_any_shard_status_is_a_whole_sentence(status: ShardStatus) -> None:
    for reason in PauseReason if status is ShardStatus.PAUSED else [""]:
        job = make_job(shards=[ShardSpec(pending=1, failed=1, status=status, reason=reason)])
        sentence = str(_why(job, job.shards.get()))
        assert sentence.endswith("。")
        assert "%(" not in sentence


@pytest.mark.parametrize("name", ["RECONCILE", "ACCOUNTS", "GATEWAYS"])
def test_why_cures_lead_to_screens_that_exist(name: str) -> None:
    assert reverse(getattr(reasons, name))


def test_why_paused_names_who_when_and_their_reason() -> None:
    job = make_job(shards=[ShardSpec(pending=1, inflight=1)])
    pause_job(job_id=job.pk, actor=make_user("operate_job", first_name="王芳"), reason="文案有误")
    # the system completes the pause later, with an event of its own
    Job.objects.filter(pk=job.pk).update(status="paused")
    Event.objects.create(kind="job.paused", job=job, data={"from": "pausing"})
    sentence = _why(job).sentence
    assert "王芳" in sentence
    assert "文案有误" in sentence


def test_why_paused_from_the_command_line_says_system() -> None:
    job = make_job()
    pause_job(job_id=job.pk, actor=None)
    assert "系统" in _why(job).sentence


@pytest.mark.parametrize(
    ("columns", "code", "words"),
    [
        (
            {"pause_reason": "budget", "budget_limit": 5, "budget_used": 5},
            "budget",
            "预算 5 条已用完",
        ),
        ({"pause_reason": "budget", "budget_limit": 5}, "budget_raised", "已提高到 5 条"),
        (
            {"pause_reason": "stage", "stages": [5, 9], "stages_passed": 1},
            "stage",
            "检查点 9 条（第 2 个，共 2 个）",
        ),
        ({"pause_reason": "breaker"}, "breaker", "熔断"),
        ({"pause_reason": "credential"}, "credential", "登录失效"),
    ],
)
def test_why_paused_by_itself_says_for_what(columns: dict, code: str, words: str) -> None:
    why = _why(make_job(status=JobStatus.PAUSED, **columns))
    assert (why.code, why.level) == (code, "warn")
    assert words in why.sentence
    assert why.cure


def test_why_verifying_counts_doubts_and_leads_to_the_queue() -> None:
    job = make_job(status=JobStatus.VERIFYING, shards=[ShardSpec(accepted=2, in_doubt=3)])
    why = _why(job)
    assert "5 条等待确认，其中 3 条存疑" in why.sentence
    assert (why.cure_url_name, why.level) == (reasons.RECONCILE, "warn")


# --- running ---


@pytest.fixture
def lane() -> Any:
    return make_lane()


def _running(**account: Any) -> Job:
    return make_job(shards=[ShardSpec(pending=3, account=make_account(**account))])


def _long_ago(job: Job) -> None:
    then = timezone.now() - timedelta(minutes=6)
    Job.objects.filter(pk=job.pk).update(started_at=then)
    job.shards.update(last_advanced_at=then)


def _in(seconds: float) -> Any:
    return timezone.now() + timedelta(seconds=seconds)


def test_why_running_and_advancing_is_fine(lane) -> None:
    assert _why(_running()).level == "ok"


def test_why_all_in_flight_waits_for_answers(lane) -> None:
    assert _why(make_job(shards=[ShardSpec(inflight=1)])).code == "in_flight"


def test_why_no_lane_alive_is_an_error() -> None:
    job = _running()
    make_lane(alive=False)
    assert _why(job).level == "ok", "a lane may be between two turns just after the start"
    _long_ago(job)
    why = _why(job)
    assert (why.code, why.level) == ("no_worker", "error")
    assert "排队" in _why(job, queued=True).sentence


def test_why_no_lane_alive_while_redis_is_away_blames_redis(settings: Any) -> None:
    job = _running()
    make_lane(alive=False)
    _long_ago(job)
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    why = _why(job)
    assert (why.code, why.level) == ("redis_away", "error")
    assert "worker" not in str(why)
    assert "检查 Redis" in why.cure


def test_why_asks_redis_only_where_no_lane_lives(lane, monkeypatch) -> None:
    monkeypatch.setattr("batches.selectors.why_running.redis_answers", pytest.fail)
    assert _why(_running()).code == "moving"


def test_why_asks_a_dead_redis_once_in_a_while(settings: Any, monkeypatch) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/7"
    asked: list[str] = []
    monkeypatch.setattr(queue, "_ping", lambda url: bool(asked.append(url)))
    assert [queue.redis_answers() for _ in range(20)] == [False] * 20
    assert asked == [settings.REDIS_URL]


def test_why_just_after_the_hours_began_is_no_alarm_for_want_of_a_lane() -> None:
    job = _running()
    _long_ago(job)
    here = timezone.localtime()
    Job.objects.filter(pk=job.pk).update(
        window_from=(here - timedelta(seconds=5)).time(),
        window_to=(here + timedelta(hours=1)).time(),
    )
    assert _why(job).level == "ok"


def test_why_a_lane_that_ended_just_now_is_no_alarm() -> None:
    job = _running()
    _long_ago(job)
    lane = make_lane()
    type(lane).objects.filter(pk=lane.pk).update(ended_at=timezone.now())
    assert _why(job).code != "no_worker"


def test_why_nothing_settled_for_long_is_stuck(lane) -> None:
    job = _running()
    _long_ago(job)
    why = _why(job)
    assert (why.code, why.level) == ("stuck", "error")
    assert "3 条可以发送" in why.sentence


@pytest.mark.parametrize(
    ("account", "code", "level"),
    [
        ({"is_active": False}, "account_off", "warn"),
        ({"health": Account.Health.CREDENTIAL}, "credential", "warn"),
        ({"hold_reason": "gateway", "hold": 30}, "gateway", "warn"),
        ({"hold_reason": "rate", "hold": 30}, "rate", "info"),
        ({"hold_reason": "window", "hold": 3600}, "window", "info"),
        ({"hold_reason": "backoff", "hold": 30}, "backoff", "info"),
        ({"gate": 40}, "rate", "info"),
        ({"throttle": 0.25}, "throttled", "info"),
        ({"hold_reason": "gateway", "hold": -1}, "moving", "ok"),
    ],
)
def test_why_account_stands_in_the_way(lane, account: dict, code: str, level: str) -> None:
    if "hold" in account:
        account = account | {"hold_until": _in(account["hold"])}
    if "gate" in account:
        account = account | {"gate_at": _in(account["gate"])}
    columns = {key: value for key, value in account.items() if key not in ("hold", "gate")}
    job = _running(name="客服一号", **columns)
    for why in (_why(job), _why(job, job.shards.get())):
        assert (why.code, why.level) == (code, level)
    assert code not in ("account_off", "credential", "gateway") or "客服一号" in why.sentence


def test_why_gateway_switched_off_is_named_before_the_account(lane) -> None:
    job = _running(is_active=False)
    Gateway.objects.update(is_active=False)
    assert _why(job).code == "gateway_off"


def test_why_long_wait_behind_a_known_cause_is_not_called_stuck(lane) -> None:
    job = _running(hold_reason="gateway", hold_until=_in(20))
    _long_ago(job)
    assert _why(job).code == "gateway"


def test_why_one_stopped_account_of_two_says_it_moves_and_what_stands(lane) -> None:
    job = make_job(
        shards=[
            ShardSpec(pending=3),
            ShardSpec(pending=4, account=make_account(is_active=False)),
        ]
    )
    why = _why(job)
    assert why.code == "partly_stopped"
    assert "1 个分片的 4 条" in why.sentence
    assert _why(job, job.shards.get(ordinal=2)).code == "account_off"
    assert _why(job, job.shards.get(ordinal=1)).code == "moving"


def test_why_all_that_is_left_is_in_paused_shards(lane) -> None:
    job = _running()
    pause_shard(job_id=job.pk, ordinal=1, actor=None, reason="先停")
    assert _why(job).code == "shards_paused"
    shard = _why(job, job.shards.get())
    assert (shard.code, "先停" in shard.sentence) == ("shard_paused", True)


@pytest.mark.parametrize(
    ("reason", "code"),
    [("credential", "credential"), ("breaker", "shards_breaker")],
)
def test_why_all_that_is_left_was_stopped_by_itself(lane, reason: str, code: str) -> None:
    job = make_job(shards=[ShardSpec(pending=2, status="paused", reason=reason)])
    type(lane).objects.all().delete()
    _long_ago(job)
    why = _why(job)
    assert (why.code, why.level) == (code, "warn")
    assert "2 条没有发" in why.sentence


def test_why_before_the_set_start_names_it() -> None:
    job = _running()
    Job.objects.filter(pk=job.pk).update(start_at=_in(3600))
    assert (_why(job).code, _why(job).level) == ("scheduled", "info")


@pytest.mark.parametrize(
    ("opens", "closes", "code"), [(1, 2, "window"), (-1, 1, "no_worker"), (-2, -1, "window")]
)
def test_why_outside_the_allowed_hours_names_the_next(opens: int, closes: int, code: str) -> None:
    """Hours relative to now, over midnight too; without a lane, which outside hours is no fault."""
    job = _running()
    _long_ago(job)
    here = timezone.localtime().replace(microsecond=0)
    Job.objects.filter(pk=job.pk).update(
        window_from=(here + timedelta(hours=opens)).time(),
        window_to=(here + timedelta(hours=closes)).time(),
    )
    assert _why(job).code == code


def test_why_everything_backed_off_names_the_next_try(lane) -> None:
    job = _running()
    _long_ago(job)
    Item.objects.filter(job_id=job.pk).update(due_at=_in(90))
    assert _why(job).code == "backoff"
    Item.objects.filter(pk=items_of(job)[2].pk).update(due_at=None)
    assert _why(job).code == "stuck"


def test_why_rate_of_the_job_names_the_ceiling(lane) -> None:
    job = _running()
    Job.objects.filter(pk=job.pk).update(rate_limit_per_min=1, rate_at=_in(50))
    why = _why(job)
    assert why.code == "job_rate"
    assert "1 条/分" in why.sentence


def test_why_numbers_are_grouped(lane) -> None:
    job = make_job(
        status=JobStatus.PAUSED,
        pause_reason="budget",
        budget_limit=1_234_567,
        budget_used=1_234_567,
    )
    assert "1,234,567" in _why(job).sentence


def test_why_in_english_still_fills_its_values(lane) -> None:
    with translation.override("en"):
        assert "%(" not in str(_why(_running(is_active=False)))


def test_why_costs_the_same_for_any_number_of_items(lane, django_assert_max_num_queries) -> None:
    job = _running()
    _long_ago(job)
    with django_assert_max_num_queries(4):
        why_not_moving(job)


def test_why_a_job_that_no_lane_can_make_sense_of_says_so_until_it_moves(lane) -> None:
    job = _running()
    _long_ago(job)
    assert tell_uncompiled(job.pk, error="没有动作 x")
    assert not tell_uncompiled(job.pk, error="没有动作 x")
    why = _why(job)
    assert (why.code, why.level) == ("cannot_compile", "error")
    assert "没有动作 x" in why.sentence
    job.shards.update(last_advanced_at=timezone.now())
    assert _why(job).level == "ok"
    assert tell_uncompiled(job.pk, error="没有动作 x"), "it stands again, for whatever reason"
