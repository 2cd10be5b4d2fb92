"""What calls for a person, found in PostgreSQL alone: opened once, closed when it is over."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone, translation

from batches.domain.alerts import ALERTS, sentence
from batches.domain.states import JobStatus
from batches.engine import watch as watching
from batches.engine.watch import watch
from batches.models import Account, Alert, Event, Gateway, Item, Job, Lane, Shard
from batches.services import jobs
from batches.store.advance import advance_jobs
from batches.store.queries import sql
from tests.factories import (
    ShardSpec,
    items_of,
    make_account,
    make_gateway,
    make_job,
    make_lane,
    make_user,
    other_connection,
)

from .watched import ago, kinds, only, open_alerts, running

pytestmark = pytest.mark.django_db


# --- nothing to tell ---


def test_watch_a_job_that_moves_tells_nothing(lane: Lane) -> None:
    make_job(shards=[ShardSpec(pending=3, confirmed=1)])
    make_job(status=JobStatus.AWAITING)
    make_job(status=JobStatus.COMPLETED, shards=[ShardSpec(confirmed=1)])
    changes = watch()
    assert changes is not None
    assert (changes.opened, changes.closed, open_alerts()) == (0, 0, [])


def test_watch_a_persons_pause_is_no_alert(lane: Lane) -> None:
    make_job(status=JobStatus.PAUSED, pause_reason="operator")
    watch()
    assert open_alerts() == []


# --- paused by itself ---


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("breaker", "熔断"),
        ("budget", "已发 4 条，预算用完"),
        ("stage", "到达放量检查点"),
        ("permission", "没有接口权限"),
        ("missed_start", "到了开始时间"),
    ],
)
@pytest.mark.parametrize("status", ["paused", "pausing"])
def test_watch_job_paused_by_itself_is_told_until_it_goes_on(
    status: str, reason: str, words: str
) -> None:
    job = make_job(
        status=JobStatus(status),
        pause_reason=reason,
        stages=[4],
        shards=[ShardSpec(pending=2, confirmed=4)],
    )
    watch()
    kind, text = only()
    assert (kind, words in text) == (f"job.{reason}", True)
    assert Alert.objects.get().job == job
    watch()
    assert Alert.objects.count() == 1
    Job.objects.filter(pk=job.pk).update(status="running", pause_reason="")
    changes = watch()
    assert changes is not None
    assert changes.closed == 1
    assert Alert.objects.get().closed_at is not None


def test_watch_the_same_cause_again_is_a_new_alert() -> None:
    job = make_job(status=JobStatus.PAUSED, pause_reason="breaker")
    for status, reason in [("paused", "breaker"), ("running", ""), ("paused", "breaker")]:
        Job.objects.filter(pk=job.pk).update(status=status, pause_reason=reason)
        watch()
    assert [a.closed_at is None for a in Alert.objects.order_by("id")] == [False, True]


def test_watch_numbers_of_an_open_alert_stay_current_and_it_is_not_told_again() -> None:
    job = make_job(status=JobStatus.PAUSED, pause_reason="breaker", shards=[ShardSpec(pending=2)])
    watch()
    Alert.objects.update(sent_at=timezone.now())
    Shard.objects.filter(job=job).update(pending=1, confirmed=1)
    watch()
    alert = Alert.objects.get()
    assert alert.params["count"] == 1
    assert alert.sent_at is not None


def test_watch_missed_start_of_a_real_job_is_told() -> None:
    job = make_job(start_at=ago(hours=2), shards=[ShardSpec(pending=1)])
    advance_jobs([job.pk])
    watch()
    assert kinds() == ["job.missed_start"]
    jobs.resume_job(job_id=job.pk, actor=None)
    watch()
    assert "job.missed_start" not in kinds()


# --- shards, accounts, gateways ---


def test_watch_tripped_shards_are_one_alert_of_their_job(lane: Lane) -> None:
    first, second = make_account(name="客服甲"), make_account(name="客服乙")
    make_job(
        shards=[
            ShardSpec(pending=1, status="paused", reason="breaker", account=first),
            ShardSpec(pending=2, status="paused", reason="breaker", account=second),
            ShardSpec(pending=3, status="paused", reason="operator"),
            ShardSpec(pending=4),
        ]
    )
    watch()
    kind, text = only()
    assert kind == "job.shards_tripped"
    assert "2 个分片熔断（账号 客服甲、客服乙），3 条没有发" in text


def test_watch_tripped_shard_of_a_job_that_stops_for_its_budget_stays_told(lane: Lane) -> None:
    """Who raises the budget should know that one account only fails."""
    job = running(ShardSpec(pending=1000, status="paused", reason="breaker"), ShardSpec(pending=4))
    watch()
    assert "job.shards_tripped" in kinds()
    Job.objects.filter(pk=job.pk).update(status="paused", pause_reason="budget")
    watch()
    assert sorted(kinds()) == ["job.budget", "job.shards_tripped"]
    assert any("1,000 条" in text for _, text in open_alerts()), "grouped as on every page"


def test_watch_lost_login_is_told_for_the_account_until_it_is_well(lane: Lane) -> None:
    account = make_account(name="客服甲", health="credential")
    make_job(shards=[ShardSpec(pending=1, status="paused", reason="credential", account=account)])
    watch()
    kind, text = only()
    assert kind == "account.credential"
    assert "账号 客服甲 登录失效，1 个分片" in text
    assert Alert.objects.get().account == account
    Account.objects.update(health="ok")
    watch()
    assert open_alerts() == []


def test_watch_lost_login_of_an_account_that_is_switched_off_is_no_alert(lane: Lane) -> None:
    make_account(health="credential", is_active=False)
    watch()
    assert open_alerts() == []


def test_watch_unreachable_gateway_is_one_alert_through_all_its_tries(lane: Lane) -> None:
    gateway = make_gateway(name="", base_url="https://user:geheim@gw.example.com:8443/x?key=geheim")
    accounts = [make_account(gateway=gateway) for _ in range(3)]
    make_job(shards=[ShardSpec(pending=1, account=account) for account in accounts])
    held = Account.objects.filter(gateway=gateway)
    held.update(hold_reason="gateway", hold_until=timezone.now() + timedelta(seconds=3))
    watch()
    assert open_alerts() == [], "the first short holds may be a hiccup"
    held.update(hold_until=timezone.now() + timedelta(seconds=20))
    watch()
    kind, text = only()
    assert kind == "gateway.unreachable"
    assert "网关 gw.example.com:8443 连不上，3 个账号" in text
    assert "geheim" not in repr(Alert.objects.values().get())
    held.update(hold_until=timezone.now() - timedelta(seconds=2))
    watch()
    assert kinds() == ["gateway.unreachable"], "being tried again is not being back"
    held.update(hold_until=timezone.now() - timedelta(seconds=61))
    watch()
    assert open_alerts() == []
    assert Alert.objects.count() == 1


def test_watch_doubts_are_told_once_the_oldest_is_overdue(lane: Lane, settings: Any) -> None:
    settings.RECONCILE_SLA_SECONDS = 600
    job = make_job(status=JobStatus.VERIFYING, shards=[ShardSpec(in_doubt=2)])
    Item.objects.filter(job_id=job.pk).update(in_doubt_at=ago(minutes=9))
    watch()
    assert open_alerts() == []
    Item.objects.filter(pk=items_of(job)[1].pk).update(in_doubt_at=ago(minutes=11))
    watch()
    kind, text = only()
    assert kind == "job.in_doubt"
    assert "2 条存疑" in text
    assert "10 分钟" in text


def test_watch_reading_that_was_given_up_is_told_for_three_days(lane: Lane) -> None:
    job = make_job(
        status=JobStatus.REJECTED,
        shards=[],
        intake={"problems": [{"code": "intake_gave_up", "text": "x", "params": {}}]},
    )
    make_job(
        status=JobStatus.REJECTED,
        shards=[],
        intake={"problems": [{"code": "rows_bad", "text": "x", "params": {}}]},
    )
    watch()
    assert kinds() == ["job.intake_gave_up"]
    assert Alert.objects.get().job == job
    Job.objects.filter(pk=job.pk).update(created_at=ago(days=4), finished_at=ago(days=4))
    watch()
    assert open_alerts() == []


def test_watch_reading_given_up_by_intake_itself_is_recognised(lane: Lane) -> None:
    from batches.intake import verdicts
    from batches.intake.report import problem_to_json

    make_job(
        status=JobStatus.REJECTED,
        shards=[],
        intake={"problems": [problem_to_json(verdicts.gave_up())]},
    )
    watch()
    assert kinds() == ["job.intake_gave_up"]


# --- nobody at work ---


def test_watch_no_lane_is_told_when_work_has_waited() -> None:
    running()
    watch()
    kind, text = only()
    assert kind == "lanes.none"
    assert "1 个作业在等" in text
    make_lane()
    watch()
    assert "lanes.none" not in kinds()


def test_watch_no_lane_while_redis_is_away_tells_of_redis(settings: Any) -> None:
    there = settings.REDIS_URL
    running()
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    watch()
    kind, text = only()
    assert kind == "redis.away"
    assert "Redis 没有应答" in text
    assert "1 个作业在等" in text
    settings.REDIS_URL = there
    watch()
    assert kinds() == ["lanes.none"], "it answers again, and nobody has started a worker"


def test_watch_redis_away_while_a_lane_lives_is_no_alert(settings: Any, lane: Lane) -> None:
    running().shards.update(last_advanced_at=timezone.now())
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    watch()
    assert open_alerts() == []


@pytest.mark.parametrize(
    "spare",
    [
        lambda _job: Lane.objects.filter(pk=make_lane().pk).update(ended_at=ago(seconds=20)),
        lambda job: Job.objects.filter(pk=job.pk).update(started_at=ago(seconds=20)),
        lambda job: Event.objects.create(kind="job.resumed", job=job),
        lambda job: Event.objects.create(kind="shard.resumed", job=job),
        lambda job: Job.objects.filter(pk=job.pk).update(start_at=ago(seconds=20)),
        lambda job: Job.objects.filter(pk=job.pk).update(status="paused"),
        lambda _job: Account.objects.update(is_active=False),
        lambda _job: Gateway.objects.update(is_active=False),
        lambda job: job.shards.update(status="paused", reason="operator"),
    ],
    ids=["turn ended", "started", "resumed", "shard resumed", "start", "paused", "account off",
         "gateway off", "shard paused"],
)  # fmt: skip
def test_watch_no_lane_is_no_alert_where_nothing_has_waited(spare: Callable[[Job], Any]) -> None:
    spare(running())
    watch()
    assert "lanes.none" not in kinds()


def test_watch_no_lane_outside_the_allowed_hours_is_no_alert() -> None:
    here = timezone.localtime()
    running(
        window_from=(here + timedelta(hours=1)).time(), window_to=(here + timedelta(hours=2)).time()
    )
    watch()
    assert open_alerts() == []


# --- many watchers, many conditions ---


def test_watch_leaves_alerts_of_other_kinds_alone() -> None:
    Alert.objects.create(key="other", kind="somebody.else", text="x")
    watch()
    assert Alert.objects.get().closed_at is None


def test_watch_while_somebody_else_watches_does_nothing() -> None:
    make_job(status=JobStatus.PAUSED, pause_reason="breaker")
    with other_connection() as other:
        other.execute(sql("watch_turn"))
        assert watch() is None
        assert not Alert.objects.exists()
        other.rollback()
    assert watch() is not None


@pytest.mark.django_db(transaction=True)
def test_watch_from_many_processes_at_once_opens_each_alert_once() -> None:
    for _ in range(20):
        make_job(status=JobStatus.PAUSED, pause_reason="breaker")
    failures: list[BaseException] = []
    barrier = threading.Barrier(4)

    def look() -> None:
        try:
            for _ in range(5):
                barrier.wait(30)
                watch()
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert Alert.objects.filter(closed_at=None).count() == Alert.objects.count() == 20


def test_watch_costs_three_statements_whatever_there_is(
    lane: Lane, django_assert_max_num_queries: Any
) -> None:
    for _ in range(5):
        make_job(status=JobStatus.PAUSED, pause_reason="budget")
        running()
    with django_assert_max_num_queries(4):  # the transaction's own two included
        watch()


def test_watch_every_kind_has_words_and_every_word_a_value(lane: Lane) -> None:
    assert {f"job.{reason.value}" for reason in watching.PAUSES} < set(ALERTS)
    query = sql("watch_alerts")
    for kind in ALERTS:
        assert f"'{kind}'" in query or kind.startswith("job.")
    for info in ALERTS.values():
        assert info.label
        assert info.text.endswith("。")


def test_alerts_page_shows_open_and_closed_ones_in_words(client: Client) -> None:
    account = make_account(name="客服甲", health="credential")
    job = make_job(
        shards=[ShardSpec(pending=1, status="paused", reason="breaker", account=account)]
    )
    watch()
    assert sorted(kinds()) == ["account.credential", "job.shards_tripped"]
    Account.objects.update(health="ok")
    watch()
    client.force_login(make_user("view_job"))
    page = client.get("/admin/alerts/").content.decode()
    assert "1 个分片熔断（账号 客服甲），1 条没有发" in page
    assert "账号 客服甲 登录失效" in page
    assert job.name in page
    assert "%(" not in page
    overview = client.get("/admin/").content.decode()
    assert "1 个分片熔断" in overview


@pytest.mark.parametrize("language", ["zh-hans", "en"])
def test_alert_of_every_kind_fills_its_values_in_any_language(language: str) -> None:
    values = dict.fromkeys(
        ("used", "count", "shards", "minutes", "account", "jobs", "gateway"), 7
    ) | {"accounts": ["甲", "乙"]}
    with translation.override(language):
        for info in ALERTS.values():
            shown = sentence(info.text, values, translation.gettext)
            assert "%(" not in shown
            assert "[" not in shown
