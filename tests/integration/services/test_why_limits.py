"""What stopped a job by itself, and which limit it waits for: the numbers in the sentence."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from batches.domain.states import JobStatus, PauseReason
from batches.models import Account, Call, Gateway, Job, Lane, Shard
from batches.selectors.why import Why, why_not_moving
from batches.services import jobs
from batches.store.advance import advance_jobs
from batches.store.trips import lose_credential, trip_job
from tests.factories import ShardSpec, make_account, make_gateway, make_job, make_lane

pytestmark = pytest.mark.django_db


@pytest.fixture
def lane() -> Lane:
    return make_lane()


def why(job: Job, shard: Shard | None = None) -> Why:
    return why_not_moving(Job.objects.get(pk=job.pk), shard)


RATIO: dict[str, Any] = {"bad": 30, "sample": 50, "category": "content_invalid", "code": "45002"}


# --- breaker ---


@pytest.mark.parametrize("inflight", [0, 1])
def test_why_breaker_by_share_says_how_many_of_how_many_and_what(inflight: int) -> None:
    job = make_job(shards=[ShardSpec(pending=2, inflight=inflight)])
    assert trip_job(job.pk, reason=PauseReason.BREAKER, data=RATIO)
    if inflight:  # the last answer comes, and the system completes the pause
        Shard.objects.filter(job=job).update(pending=2, confirmed=1)
        Call.objects.filter(job=job).update(answered_at=timezone.now())
        assert advance_jobs([job.pk]) == 1
    said = why(job)
    assert (said.code, said.level) == ("breaker", "warn")
    assert "最近 50 次结果里 30 次失败，最后一次是「内容不合规」" in said.sentence
    assert "先各试一条" in said.cure


def test_why_breaker_by_minutes_leaves_out_what_nobody_saw() -> None:
    job = make_job(shards=[ShardSpec(pending=2)])
    assert trip_job(job.pk, reason=PauseReason.BREAKER, data={"bad": 30, "sample": 50})
    assert why(job).sentence == "熔断：最近 50 次结果里 30 次失败。"


def test_why_breaker_by_shards_names_them() -> None:
    specs = [
        ShardSpec(pending=1, status="paused", reason="breaker", account=make_account(name=name))
        for name in ("客服甲", "客服乙", "客服丙", "客服丁")
    ]
    job = make_job(shards=[*specs, ShardSpec(pending=1)])
    assert advance_jobs([job.pk]) == 1
    sentence = why(job).sentence
    assert "4 个分片连续失败（账号 客服甲、客服乙、客服丙）" in sentence


def test_why_breaker_tells_of_the_latest_stop_only() -> None:
    """Stopped by share, taken up again, stopped by its shards."""
    job = make_job(shards=[ShardSpec(pending=1), ShardSpec(pending=1)])
    trip_job(job.pk, reason=PauseReason.BREAKER, data=RATIO)
    jobs.resume_job(job_id=job.pk, actor=None)
    Shard.objects.filter(job=job).update(status="paused", reason="breaker", bad_streak=10)
    assert advance_jobs([job.pk]) == 1
    assert "2 个分片连续失败" in why(job).sentence


def test_why_tripped_shard_says_how_often_in_a_row() -> None:
    job = make_job(shards=[ShardSpec(pending=1, status="paused", reason="breaker")])
    Shard.objects.filter(job=job).update(bad_streak=10)
    said = why(job, job.shards.get())
    assert said.code == "shard_breaker"
    assert "连续 10 次失败" in said.sentence


# --- permission and credential ---


def test_why_permission_names_account_and_code() -> None:
    account = make_account(name="客服甲")
    job = make_job(shards=[ShardSpec(pending=2, account=account)])
    data = {"bad": 1, "sample": 1, "category": "permission", "code": "48002"}
    trip_job(job.pk, reason=PauseReason.PERMISSION, data=data, account_id=account.pk)
    said = why(job)
    assert (said.code, said.level) == ("permission", "warn")
    assert "账号 客服甲 没有接口权限（错误码 48002）" in said.sentence


def test_why_permission_without_the_record_is_still_a_sentence() -> None:
    job = make_job(status=JobStatus.PAUSED, pause_reason="permission")
    assert "没有接口权限" in why(job).sentence


def test_why_lost_login_names_the_account_on_job_and_shard(lane: Lane) -> None:
    account = make_account(name="客服甲")
    job = make_job(shards=[ShardSpec(pending=2, account=account)])
    lose_credential(account.pk, note="40014")
    for said in (why(job), why(job, job.shards.get())):
        assert said.code.endswith("credential")
        assert "客服甲 登录失效" in said.sentence
        assert said.cure_url_name == "admin:accounts"


# --- limits of the gateway ---


def waiting(lane: Lane, gateway: Gateway, accounts: int = 1, **columns: Any) -> Job:
    """A job of some accounts of one gateway, driven by a lane, that settled something just now."""
    made = [make_account(gateway=gateway, name=f"客服{n}", **columns) for n in range(accounts)]
    Account.objects.filter(gateway=gateway).update(lane=lane)
    return make_job(shards=[ShardSpec(pending=2, confirmed=1, account=a) for a in made])


@pytest.mark.parametrize("limit", [{"rate_limit_per_min": 600}, {"max_concurrent": 8}])
def test_why_redis_away_holds_accounts_of_limited_gateways(lane: Lane, limit: dict) -> None:
    job = waiting(lane, make_gateway(**limit))
    Lane.objects.update(note="redis")
    for said in (why(job), why(job, job.shards.get())):
        assert (said.code, said.level) == ("redis_away", "warn")
        assert "账号 客服0 的网关有总上限" in said.sentence
        assert "2 条先不发" in said.sentence
        assert "Redis" in said.cure
    Lane.objects.update(note="")
    assert why(job).code == "moving"


def test_why_redis_away_does_not_hold_gateways_without_limits(lane: Lane) -> None:
    job = waiting(lane, make_gateway())
    Lane.objects.update(note="redis")
    assert why(job).code == "moving"


def test_why_redis_away_of_a_dead_lane_is_no_cause(lane: Lane) -> None:
    job = waiting(lane, make_gateway(max_concurrent=8))
    Lane.objects.update(note="redis", ended_at=timezone.now())
    make_lane()
    assert why(job).code == "moving"


def test_why_rate_of_the_gateway_says_what_the_accounts_could_do(lane: Lane) -> None:
    gateway = make_gateway(name="一号网关", rate_limit_per_min=100)
    job = waiting(lane, gateway, accounts=3, total_rate_per_min=60, online_reserve_per_min=10)
    said = why(job)
    assert (said.code, said.level) == ("gateway_rate", "info")
    assert "网关 一号网关 的总速率上限（100 条/分）" in said.sentence
    assert "可以发 150 条/分" in said.sentence
    Gateway.objects.update(rate_limit_per_min=150)
    assert why(job).code == "moving"


def test_why_places_of_the_gateway_all_taken_says_so(lane: Lane) -> None:
    gateway = make_gateway(name="", base_url="https://u:geheim@gw.example.com/x", max_concurrent=2)
    job = waiting(lane, gateway, accounts=2)
    other = make_account(gateway=gateway)
    make_job(shards=[ShardSpec(pending=1, inflight=1, account=other)], lane=lane)
    assert why(job).code == "moving"
    make_job(shards=[ShardSpec(inflight=1, account=make_account(gateway=gateway))], lane=lane)
    said = why(job)
    assert (said.code, said.level) == ("gateway_busy", "info")
    assert "网关 gw.example.com 的 2 个并发已占满" in said.sentence
    assert "geheim" not in said.sentence


def test_why_limited_gateway_where_nothing_moves_at_all_is_stuck(lane: Lane) -> None:
    job = waiting(lane, make_gateway(rate_limit_per_min=10))
    assert why(job).code == "gateway_rate"
    then = timezone.now() - timedelta(minutes=6)
    Job.objects.filter(pk=job.pk).update(started_at=then)
    Shard.objects.filter(job=job).update(last_advanced_at=then)
    assert why(job).code == "stuck"


# --- schedule ---


def test_why_scheduled_outside_the_hours_names_when_they_open() -> None:
    here = timezone.localtime().replace(second=0, microsecond=0)
    start = here + timedelta(hours=1)
    opens = here + timedelta(hours=3)
    job = make_job(
        start_at=start,
        window_from=opens.time(),
        window_to=(here + timedelta(hours=4)).time(),
        shards=[ShardSpec(pending=1)],
    )
    said = why(job)
    assert said.code == "scheduled"
    assert said.params["until"] == opens
