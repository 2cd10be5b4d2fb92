"""The recount: silent on a consistent database, and loud on each kind of drift."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from batches.domain.states import JobStatus
from batches.intake.source import source_of
from batches.models import Account, Call, Event, Item, Job, Shard
from batches.selectors import verify as verify_module
from batches.selectors.verify import verify
from batches.services.accounts import load_accounts
from batches.services.settings import change_account
from tests.factories import (
    ShardSpec,
    items_of,
    make_account,
    make_job,
    make_lane,
    other_connection,
)

pytestmark = pytest.mark.django_db
MIXED = ShardSpec(pending=2, inflight=1, accepted=2, in_doubt=1, confirmed=3, failed=2, abandoned=1)


def _codes(**words: Any) -> list[str]:
    return [finding.code for finding in verify(**words).findings]


def test_verify_consistent_jobs_in_every_state_finds_nothing() -> None:
    make_job(shards=[MIXED, ShardSpec(pending=1)])
    make_job(status=JobStatus.AWAITING)
    make_job(status=JobStatus.PREPARING, shards=[], total=0)
    make_job(status=JobStatus.COMPLETED, shards=[ShardSpec(confirmed=2), ShardSpec(failed=1)])
    make_job(status=JobStatus.CANCELLED, shards=[ShardSpec(abandoned=2, in_doubt=1)])
    make_job(status=JobStatus.TERMINATED, shards=[ShardSpec(pending=2, in_doubt=1)])
    make_job(status=JobStatus.REJECTED, shards=[])
    result = verify()
    assert result.findings == ()
    assert result.checked == {
        "jobs": 7, "shards": 7, "items": 25, "calls": 14, "accounts": 7,
    }  # fmt: skip


@pytest.mark.parametrize("counter", ["pending", "submitted", "confirmed", "failed", "abandoned"])
def test_verify_counter_off_by_one_is_found(counter: str) -> None:
    job = make_job(shards=[MIXED])
    shard = job.shards.get()
    other = "confirmed" if counter != "confirmed" else "failed"
    Shard.objects.filter(pk=shard.pk).update(
        **{counter: getattr(shard, counter) - 1, other: getattr(shard, other) + 1}
    )
    found = verify().findings
    assert {finding.params["counter"] for finding in found} == {counter, other}
    assert {finding.code for finding in found} == {"shard_counter"}


def test_verify_in_doubt_counter_is_compared() -> None:
    make_job(shards=[MIXED]).shards.update(in_doubt=2)
    assert _codes() == ["shard_counter"]


def test_verify_item_gone_is_found_in_shard_and_job() -> None:
    job = make_job(shards=[MIXED])
    items_of(job, "pending")[0].delete()
    assert sorted(set(_codes())) == ["job_total", "shard_counter"]


def test_verify_items_without_a_shard_are_found() -> None:
    job = make_job(shards=[ShardSpec(pending=2)])
    Item.objects.filter(job_id=job.pk).update(shard_id=999_999_999)
    assert "orphan_items" in _codes()


def test_verify_total_that_does_not_match_is_found() -> None:
    job = make_job()
    Job.objects.filter(pk=job.pk).update(total=4)
    assert _codes() == ["job_total"]


@pytest.mark.parametrize("by", [-1, 1])
def test_verify_budget_off_by_one_is_found(by: int) -> None:
    job = make_job(shards=[MIXED])
    Job.objects.filter(pk=job.pk).update(budget_used=job.budget_used + by)
    assert _codes() == ["budget_used"]


def test_verify_more_sends_than_the_budget_is_found() -> None:
    job = make_job(shards=[ShardSpec(confirmed=3)], status=JobStatus.COMPLETED)
    Job.objects.filter(pk=job.pk).update(budget_limit=2, budget_used=2)
    assert _codes() == ["budget_used", "over_budget"]


@pytest.mark.parametrize("outcome", [None, "accepted", "unknown"])
def test_verify_second_send_without_a_refusal_is_found(outcome: str | None) -> None:
    job = make_job(shards=[ShardSpec(confirmed=1, pending=1)])
    item = items_of(job, "confirmed")[0]
    call = Call.objects.get(pk=item.call_id)
    call.pk, call.outcome = None, outcome
    call.save(force_insert=True)
    assert _codes() == ["sent_twice"]
    Event.objects.create(kind="item.retried", job=job, item_id=item.pk)
    assert "sent_twice" not in _codes()


@pytest.mark.parametrize("outcome", ["refused", "not_sent"])
def test_verify_second_send_after_a_definite_negative_is_fine(outcome: str) -> None:
    job = make_job(shards=[ShardSpec(confirmed=1, pending=1)])
    call = Call.objects.get(pk=items_of(job, "confirmed")[0].call_id)
    call.pk, call.outcome, call.sent_at = None, outcome, call.sent_at - timedelta(hours=1)
    call.save(force_insert=True)
    assert _codes() == []


@pytest.mark.parametrize(("state", "codes"), [("confirmed", ["sent_twice"]), ("failed", [])])
def test_verify_mixed_call_counts_where_the_item_hangs_on_it(state: str, codes: list[str]) -> None:
    job = make_job(shards=[ShardSpec(pending=1, **{state: 1})])
    item = items_of(job, state)[0]
    call = Call.objects.get(pk=item.call_id)
    Call.objects.filter(pk=call.pk).update(outcome="mixed")
    call.pk, call.outcome = None, "accepted"
    call.save(force_insert=True)
    assert _codes() == codes


def test_verify_item_whose_call_has_ended_is_found() -> None:
    job = make_job(shards=[MIXED])
    Call.objects.filter(job_id=job.pk, answered_at=None, lost_at=None).update(
        answered_at=timezone.now()
    )
    assert _codes() == ["forgotten"]


def test_verify_item_of_another_call_is_found() -> None:
    job = make_job(shards=[ShardSpec(accepted=2)])
    first, second = items_of(job)
    Item.objects.filter(pk=first.pk).update(call_id=second.call_id)
    Item.objects.filter(pk=second.pk).update(call_id=987_654_321)
    assert _codes() == ["foreign_call", "no_call"]


def test_verify_open_call_nobody_waits_for_is_found() -> None:
    job = make_job(shards=[ShardSpec(confirmed=1, pending=1)])
    Call.objects.filter(job_id=job.pk).update(answered_at=None, outcome="accepted")
    assert _codes() == ["open_call"]


def test_verify_open_call_of_a_dead_lane_is_found_after_the_grace() -> None:
    make_job(shards=[ShardSpec(inflight=1)], lane=make_lane(alive=False))
    assert _codes() == ["orphan_call"]
    assert _codes(grace=3600) == []


def test_verify_account_of_a_dead_lane_with_work_is_found() -> None:
    dead = make_lane(alive=False)
    busy, idle = make_account(lane=dead), make_account(lane=dead)
    make_job(shards=[ShardSpec(pending=1, account=busy)])
    make_job(shards=[ShardSpec(confirmed=1, account=idle)], status=JobStatus.COMPLETED)
    (finding,) = verify().findings
    assert (finding.code, finding.params["guid"]) == ("dead_owner", busy.guid)
    assert _codes(grace=3600) == []


@pytest.fixture
def burst() -> Job:
    """Three sends within a minute on an account that may do two."""
    account = make_account(total_rate_per_min=3, online_reserve_per_min=1)
    job = make_job(shards=[ShardSpec(confirmed=3, pending=1, account=account)])
    at = timezone.now() - timedelta(hours=1)
    for number, call in enumerate(Call.objects.filter(job_id=job.pk).order_by("id")):
        Call.objects.filter(pk=call.pk).update(sent_at=at + timedelta(seconds=30 * number))
    return job


def test_verify_sends_above_the_batch_rate_are_found(burst: Job) -> None:
    (finding,) = verify().findings
    assert (finding.code, finding.params["sends"], finding.params["allowed"]) == ("over_rate", 3, 2)


def test_verify_sends_at_the_batch_rate_are_fine(burst: Job) -> None:
    call = Call.objects.filter(job_id=burst.pk).latest("sent_at")
    Call.objects.filter(pk=call.pk).update(sent_at=call.sent_at + timedelta(milliseconds=1))
    assert _codes() == []


def test_verify_requests_that_never_left_are_no_sends(burst: Job) -> None:
    item = items_of(burst, "confirmed")[0]
    Call.objects.filter(pk=item.call_id).update(outcome="not_sent")
    assert "over_rate" not in _codes()


def test_verify_sends_before_a_change_of_the_rate_are_not_judged(burst: Job) -> None:
    account = Account.objects.get(shard__job=burst)
    change_account(account_id=account.pk, actor=None, changes={"total_rate_per_min": 2})
    assert _codes() == []


def test_verify_a_lane_gets_a_moment_to_take_up_a_change(burst: Job) -> None:
    account = Account.objects.get(shard__job=burst)
    Account.objects.filter(pk=account.pk).update(total_rate_per_min=4)
    change_account(account_id=account.pk, actor=None, changes={"total_rate_per_min": 3})
    first = Call.objects.filter(job_id=burst.pk).earliest("sent_at")
    for ago, found in ((4, []), (6, ["over_rate"])):
        at = first.sent_at - timedelta(seconds=ago)
        Event.objects.filter(kind="account.changed").update(at=at)
        assert _codes() == found


def test_verify_another_name_excuses_nothing(burst: Job) -> None:
    account = Account.objects.get(shard__job=burst)
    change_account(account_id=account.pk, actor=None, changes={"name": "新名"})
    assert Event.objects.filter(kind="account.changed").exists()
    assert _codes() == ["over_rate"]


def test_verify_events_that_change_no_limit_hide_nothing(burst: Job) -> None:
    account = Account.objects.get(shard__job=burst)
    Event.objects.create(kind="account.credential_lost", account=account)
    assert _codes() == ["over_rate"]


def test_verify_a_load_that_changes_the_rate_excuses_what_was_before(burst: Job) -> None:
    account = Account.objects.get(shard__job=burst)
    head = "gateway_url,guid,total_rate_per_min"
    for rate, found in ((3, ["over_rate"]), (4, ["over_rate"]), (2, [])):
        Account.objects.filter(pk=account.pk).update(total_rate_per_min=3)
        other = account.gateway.base_url if rate != 4 else "http://10.9.9.9"
        row = f"{other},{account.guid},{rate}"
        load_accounts(actor=None, source=source_of("a.csv", f"{head}\n{row}".encode()))
        assert _codes() == found


def test_verify_settled_shard_with_open_items_is_found() -> None:
    make_job(shards=[ShardSpec(pending=1, status="completed")])
    assert _codes() == ["shard_settled"]


@pytest.mark.parametrize(
    ("status", "spec"),
    [
        (JobStatus.COMPLETED, ShardSpec(in_doubt=1, confirmed=1)),
        (JobStatus.COMPLETED, ShardSpec(pending=1)),
        (JobStatus.CANCELLED, ShardSpec(pending=1)),
        (JobStatus.REJECTED, ShardSpec(pending=1)),
    ],
)
def test_verify_ended_job_with_open_items_is_found(status: JobStatus, spec: ShardSpec) -> None:
    make_job(status=status, shards=[spec])
    assert "job_ended" in _codes()


def test_verify_one_job_looks_at_that_one_alone() -> None:
    good, bad = make_job(shards=[MIXED]), make_job()
    Job.objects.filter(pk=bad.pk).update(total=99)
    assert _codes(job_id=good.pk) == []
    assert _codes(job_id=bad.pk) == ["job_total"]
    assert verify(job_id=good.pk).checked["items"] == 12


@pytest.mark.django_db(transaction=True)
def test_verify_command_says_what_it_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    make_job(shards=[MIXED])
    call_command("verify")
    assert "1 个作业、1 个分片、12 条" in capsys.readouterr().out
    call_command("verify", "--json")
    said = json.loads(capsys.readouterr().out)
    assert (said["ok"], said["findings"]) == (True, [])


@pytest.mark.django_db(transaction=True)
def test_verify_command_on_drift_lists_it_and_exits_1(capsys: pytest.CaptureFixture[str]) -> None:
    job = make_job()
    Job.objects.filter(pk=job.pk).update(total=99)
    with pytest.raises(SystemExit, match="1"):
        call_command("verify")
    out = capsys.readouterr().out
    assert f"作业 {job.pk}：条目数记为 99，实际 3。" in out
    assert "发现 1 处偏差" in out
    with pytest.raises(SystemExit, match="1"):
        call_command("verify", "--json")
    said = json.loads(capsys.readouterr().out)
    assert (said["ok"], said["findings"][0]["code"]) == (False, "job_total")


@pytest.mark.django_db(transaction=True)
def test_verify_command_while_items_are_settled_stays_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between two of its queries another connection settles an item, consistently."""
    job = make_job(shards=[ShardSpec(pending=1, inflight=2)])
    items = iter([item.pk for item in items_of(job, "submitted")])
    real, settled = verify_module.run_query, []

    def rows_and_meanwhile_a_settle(name: str, **params: object) -> list[dict[str, Any]]:
        found = real(name, **params)
        if name in ("verify_shards", "verify_jobs"):
            settled.append(_settle_elsewhere(job.pk, next(items)))
        return found

    monkeypatch.setattr(verify_module, "run_query", rows_and_meanwhile_a_settle)
    call_command("verify")
    assert "没有偏差" in capsys.readouterr().out
    assert len(settled) == 2
    assert job.shards.get().confirmed == 2


def _settle_elsewhere(job_id: int, item_id: int) -> bool:
    with other_connection() as other:
        other.execute(
            "update batches_item set state = 'confirmed', settled_at = now() where id = %s",
            [item_id],
        )
        other.execute(
            "update batches_call set answered_at = now(), outcome = 'accepted' "
            "where %s = any(item_ids)",
            [item_id],
        )
        other.execute(
            "update batches_shard set pending = pending - 1, confirmed = confirmed + 1 "
            "where job_id = %s",
            [job_id],
        )
        other.commit()
    return True


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--job", "777"), "没有编号为 777 的作业"),
        (("--job", "99999999999999999999999"), "没有编号为"),
        (("--grace", "99999999999999999999999"), "宽限秒数"),
        (("--grace", "-1"), "宽限秒数"),
    ],
)
def test_verify_command_that_cannot_is_neither_clean_nor_drift(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        call_command("verify", *words, "--json")
    told = capsys.readouterr()
    assert said in told.err
    assert said in json.loads(told.out)["error"]
