"""What a recorded outcome changes, from every origin and under every job, and only once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

import psycopg
import pytest

from batches.domain.decisions import Decision, Fate
from batches.domain.states import JobStatus
from batches.models import Account, Call, Event, Item, Job, JobMinute, Shard
from batches.store.advance import rescue_lost_calls
from batches.store.settle import settle
from tests.factories import ShardSpec, items_of, make_job, make_lane

from .support import (
    DECISIONS,
    answer,
    assert_sound,
    claim,
    connected,
    open_gates,
    own,
    owned_job,
    plain_connection,
    run,
    settle_all,
    snapshot,
    sql,
)

pytestmark = pytest.mark.django_db(transaction=True)

COUNTERS = ("pending", "submitted", "in_doubt", "confirmed", "failed", "abandoned")
MINUTE = ("sent", "confirmed", "failed", "in_doubt", "returned")
#: (origin, fate) → changes of the shard's counters, of the budget, and of the minute
MATRIX: dict[tuple[str, str], tuple[dict[str, int], int, dict[str, int]]] = {
    ("inflight", "confirmed"): (
        {"pending": -1, "confirmed": 1}, 0, {"sent": 1, "confirmed": 1}
    ),
    ("inflight", "accepted"): ({"pending": -1, "submitted": 1}, 0, {"sent": 1}),
    ("inflight", "failed"): ({"pending": -1, "failed": 1}, -1, {"failed": 1}),
    ("inflight", "retry"): ({}, -1, {"returned": 1}),
    ("inflight", "retry_uncounted"): ({}, -1, {"returned": 1}),
    ("inflight", "doubt"): (
        {"pending": -1, "submitted": 1, "in_doubt": 1}, 0, {"sent": 1, "in_doubt": 1}
    ),
    ("in_doubt", "confirmed"): (
        {"submitted": -1, "in_doubt": -1, "confirmed": 1}, 0, {"confirmed": 1}
    ),
    ("in_doubt", "accepted"): ({"in_doubt": -1}, 0, {}),
    ("in_doubt", "failed"): (
        {"submitted": -1, "in_doubt": -1, "failed": 1}, -1, {"failed": 1}
    ),
    ("in_doubt", "retry"): (
        {"submitted": -1, "in_doubt": -1, "pending": 1}, -1, {"returned": 1}
    ),
    ("in_doubt", "retry_uncounted"): (
        {"submitted": -1, "in_doubt": -1, "pending": 1}, -1, {"returned": 1}
    ),
    ("in_doubt", "doubt"): ({}, 0, {}),
}  # fmt: skip
STATUSES = {
    "inflight": ["running", "pausing", "cancelling", "terminating"],
    "in_doubt": [
        "running", "pausing", "paused", "verifying", "cancelling", "cancelled", "terminating",
        "terminated",
    ],
}  # fmt: skip
CASES = [(origin, fate, status) for origin, fate in MATRIX for status in STATUSES[origin]]


def waiting_job(origin: str, status: str = "running", **spec: int) -> tuple[Job, Item]:
    """A job with one item in flight or in doubt, three pending and one confirmed beside it."""
    cancelled = status == "cancelled"
    beside = {"confirmed": 1} | ({"abandoned": 3} if cancelled else {"pending": 3})
    if status == "verifying":
        beside = {"confirmed": 4}
    job = make_job(status=JobStatus(status), shards=[ShardSpec(**{origin: 1}, **(spec or beside))])
    (item,) = items_of(job, "submitted")
    return job, item


def minute_sums(job: Job) -> dict[str, int]:
    sums = dict.fromkeys(MINUTE, 0)
    for row in JobMinute.objects.filter(job=job):
        for name in MINUTE:
            sums[name] += getattr(row, name)
    return sums


@pytest.mark.parametrize(("origin", "fate", "status"), CASES)
def test_settle_each_fate_from_each_origin_changes_what_the_table_says(origin, fate, status):
    job, item = waiting_job(origin, status)
    before = Shard.objects.values(*COUNTERS).get(job=job)
    used = job.budget_used
    settle_all(answer(item, fate))
    counters, budget, minute = MATRIX[origin, fate]
    if status == "cancelled" and fate.startswith("retry"):
        counters = {"submitted": -1, "in_doubt": -1, "abandoned": 1}
    after = Shard.objects.values(*COUNTERS).get(job=job)
    changed = {k: after[k] - before[k] for k in COUNTERS if after[k] != before[k]}
    assert changed == counters
    assert Job.objects.get(pk=job.pk).budget_used - used == budget
    assert minute_sums(job) == dict.fromkeys(MINUTE, 0) | minute
    assert_sound()


@pytest.mark.parametrize(
    ("fate", "state", "attempt"),
    [
        ("confirmed", "confirmed", 1),
        ("accepted", "submitted", 1),
        ("failed", "failed", 1),
        ("retry", "pending", 1),
        ("retry_uncounted", "pending", 0),
        ("doubt", "submitted", 1),
    ],
)
@pytest.mark.parametrize("origin", ["inflight", "in_doubt"])
def test_settle_writes_the_item_and_its_call(origin, fate, state, attempt):
    _, item = waiting_job(origin)
    settle_all(answer(item, fate))
    doubt_again = origin == "in_doubt" and fate == "doubt"
    item.refresh_from_db()
    call = Call.objects.get(pk=item.call_id)
    decision = DECISIONS[fate]
    assert (item.state, item.attempt) == (state, attempt)
    assert (item.accepted_at is not None) == (fate == "accepted")
    assert (item.in_doubt_at is not None) == (fate == "doubt")
    assert (item.settled_at is not None) == (state in ("confirmed", "failed"))
    assert (item.due_at is not None) == (decision.wait > 0)
    if fate in ("confirmed", "accepted"):
        assert (item.msg_id, item.category, item.code) == ("m1", None, None)
    else:
        assert (item.category, item.code) == (decision.category, decision.code)
    assert (call.answered_at is None) == (fate == "doubt")
    if not doubt_again:
        assert call.outcome == decision.outcome
    assert (call.lost_at is not None) == (fate == "doubt" or origin == "in_doubt")


# --- once ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fate", sorted(DECISIONS))
@pytest.mark.parametrize("origin", ["inflight", "in_doubt"])
def test_settle_repeated_changes_nothing(origin, fate):
    """A lane whose connection broke at the commit settles the group again."""
    job, item = waiting_job(origin)
    settle_all(answer(item, fate))
    before = snapshot(job)
    settle_all(answer(item, fate))
    assert snapshot(job) == before


def test_settle_repeated_slows_and_recovers_an_account_only_once():
    slowing = Decision(
        Fate.RETRY, "refused", category="rate_limited", refund=True, counted=False,
        slow_down=True, hold=60.0, hold_reason="backoff",
    )  # fmt: skip
    job, item = waiting_job("inflight")
    again = answer(item, "retry", decision=slowing, late=2.0)
    settle_all(again)
    before = snapshot(job)
    assert Account.objects.get(pk=item.shard.account_id).throttle == 0.5
    settle_all(again)
    assert snapshot(job) == before
    other, item = waiting_job("inflight")
    sql("update batches_account set throttle = 0.5 where id = %s", item.shard.account_id)
    good = answer(item, "confirmed", throttled=True)
    settle_all(good)
    before = snapshot(other)
    settle_all(good)
    assert snapshot(other) == before
    assert Account.objects.get(pk=item.shard.account_id).throttle == pytest.approx(0.55)


@pytest.mark.parametrize("second", sorted(DECISIONS))
@pytest.mark.parametrize("first", ["confirmed", "accepted", "failed", "retry"])
def test_settle_first_proof_stands_whatever_is_said_later(first, second):
    job, item = waiting_job("inflight")
    settle_all(answer(item, first))
    before = snapshot(job)
    settle_all(answer(item, second))
    assert snapshot(job) == before


@pytest.mark.parametrize("fate", sorted(DECISIONS))
def test_settle_of_an_older_call_leaves_the_item_of_a_newer_one_alone(fate):
    """A refused item is on its way again: what its first call is said to be is history."""
    lane = make_lane()
    job = owned_job(lane, ShardSpec(pending=1))
    (item,) = items_of(job)
    claim(lane=lane.pk, items=[item.pk])
    item.refresh_from_db()
    old = item.call_id
    settle_all(answer(item, "retry_uncounted"))
    open_gates()
    claim(lane=lane.pk, items=[item.pk])
    item.refresh_from_db()
    assert item.call_id != old
    before = snapshot(job)
    settle_all(answer(item, fate, call_id=old))
    assert snapshot(job) == before


def test_settle_of_a_call_of_another_item_changes_nothing():
    job, item = waiting_job("inflight")
    other_job, other = waiting_job("inflight")
    before = snapshot(job), snapshot(other_job)["items"]
    settle_all(answer(item, "confirmed", call_id=other.call_id))
    assert snapshot(job) == before[0]
    assert snapshot(other_job)["items"] == before[1]


# --- late truths ---------------------------------------------------------------------------------


@pytest.mark.parametrize("fate", ["confirmed", "accepted", "failed", "retry"])
def test_settle_after_the_rescue_takes_the_item_out_of_doubt(fate):
    """Accepted from any owner: the sender was taken for dead, its answer arrives all the same."""
    dead = make_lane(alive=False)
    job = make_job(shards=[ShardSpec(inflight=1, pending=1)], lane=dead)
    (item,) = items_of(job, "submitted")
    assert rescue_lost_calls() == 1
    assert Shard.objects.get(job=job).in_doubt == 1
    settle_all(answer(item, fate))
    item.refresh_from_db()
    call = Call.objects.get(pk=item.call_id)
    assert item.in_doubt_at is None
    assert (call.answered_at is None, call.lost_at is None) == (False, False)
    assert Shard.objects.get(job=job).in_doubt == 0
    assert minute_sums(job)["sent"] == 1
    assert_sound()


def test_settle_doubt_after_the_rescue_says_nothing_new():
    dead = make_lane(alive=False)
    job = make_job(shards=[ShardSpec(inflight=1, pending=1)], lane=dead)
    (item,) = items_of(job, "submitted")
    rescue_lost_calls()
    before = snapshot(job)
    settle_all(answer(item, "doubt"))
    assert snapshot(job) == before


def test_settle_late_refusal_in_a_cancelled_job_abandons_and_returns_the_send():
    job, item = waiting_job("in_doubt", "cancelled")
    settle_all(answer(item, "retry"))
    item.refresh_from_db()
    assert (item.state, item.settled_at is not None) == ("abandoned", True)
    assert Job.objects.get(pk=job.pk).budget_used == 1


# --- shards --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "fate", "status"),
    [
        ({"confirmed": 1}, "confirmed", "completed"),
        ({"confirmed": 1}, "failed", "completed"),
        ({"failed": 2}, "failed", "failed"),
        ({"failed": 2}, "confirmed", "completed"),
        ({"abandoned": 1}, "failed", "completed"),
        ({"confirmed": 1}, "doubt", "running"),
        ({"confirmed": 1}, "accepted", "running"),
        ({"confirmed": 1}, "retry", "running"),
        ({"pending": 1}, "confirmed", "running"),
        ({"accepted": 1}, "confirmed", "running"),
        ({"in_doubt": 1}, "failed", "running"),
    ],
)
def test_settle_last_item_ends_the_shard(spec, fate, status):
    job = make_job(shards=[ShardSpec(inflight=1, **spec)])
    item = Item.objects.get(call__in=Call.objects.filter(answered_at=None, lost_at=None))
    settle_all(answer(item, fate))
    assert Shard.objects.get(job=job).status == status


def test_settle_last_item_of_a_paused_shard_ends_it_and_clears_the_reason():
    job = make_job(shards=[ShardSpec(inflight=1, status="paused", reason="operator")])
    (item,) = items_of(job)
    settle_all(answer(item, "confirmed"))
    shard = Shard.objects.get(job=job)
    assert (shard.status, shard.reason) == ("completed", "")


def test_settle_moves_the_cursor_to_the_highest_settled_item_only():
    lane = make_lane()
    job = owned_job(lane, ShardSpec(pending=3))
    items = items_of(job)
    for item in items:
        claim(lane=lane.pk, items=[item.pk])
        open_gates()
    first, second, third = items_of(job)
    settle_all(answer(second, "confirmed"))
    assert Shard.objects.get(job=job).cursor == 2
    settle_all(answer(third, "retry"))
    assert Shard.objects.get(job=job).cursor == 2
    settle_all(answer(first, "failed"))
    assert Shard.objects.get(job=job).cursor == 2


def test_settle_group_of_many_shards_and_fates_keeps_every_sum():
    fates = sorted(DECISIONS)
    jobs = [
        make_job(shards=[ShardSpec(inflight=1, in_doubt=1, pending=2) for _ in range(6)])
        for _ in range(3)
    ]
    waiting = [item for job in jobs for item in items_of(job, "submitted")]
    answers = [answer(item, fates[n % len(fates)]) for n, item in enumerate(waiting)]
    done = settle_all(*answers)
    assert done == set()
    assert_sound(*jobs)


def test_settle_names_jobs_of_which_a_shard_has_nothing_left_to_send():
    ending, item = waiting_job("inflight", confirmed=1)
    going_on, other = waiting_job("inflight")
    done = settle_all(answer(item, "confirmed"), answer(other, "confirmed"))
    assert done == {ending.pk}
    assert going_on.pk not in done


def test_settle_call_of_several_targets_gives_each_its_own_fate():
    lane = make_lane()
    job = owned_job(lane, ShardSpec(pending=5))
    ids = [item.pk for item in items_of(job)]
    made = claim(lane=lane.pk, items=ids, size=5).claimed
    assert len({c.call_id for c in made}) == 1
    first = Item.objects.get(pk=ids[0])
    fates = ["confirmed", "accepted", "failed", "retry", "doubt"]
    together = replace(
        answer(first, "confirmed"),
        item_ids=tuple(ids),
        decisions=tuple(DECISIONS[fate] for fate in fates),
    )
    settle_all(together)
    states = [item.state for item in items_of(job)]
    assert states == ["confirmed", "submitted", "failed", "pending", "submitted"]
    assert Job.objects.get(pk=job.pk).budget_used == 3
    assert Call.objects.get().outcome == "mixed"
    assert_sound()
    settle_all(answer(Item.objects.get(pk=ids[4]), "confirmed"))  # its late truth
    assert Item.objects.get(pk=ids[4]).state == "confirmed"
    assert_sound()


# --- the breaker ---------------------------------------------------------------------------------


def test_settle_consecutive_bad_outcomes_trip_only_their_shard():
    job = make_job(
        shards=[ShardSpec(inflight=3, pending=2), ShardSpec(inflight=1, pending=2)],
        breaker_streak=3,
    )
    for item in items_of(job, "submitted"):
        settle_all(answer(item, "failed"))
    first, second = Shard.objects.filter(job=job).order_by("ordinal")
    assert (first.status, first.reason, first.bad_streak) == ("paused", "breaker", 3)
    assert (second.status, second.reason, second.bad_streak) == ("running", "", 1)
    (event,) = Event.objects.filter(kind="shard.tripped")
    assert (event.job_id, event.shard_ordinal) == (job.pk, 1)


def test_settle_good_outcome_starts_the_streak_anew():
    job = make_job(shards=[ShardSpec(inflight=4, pending=2)], breaker_streak=3)
    for item, fate in zip(
        items_of(job, "submitted"), ["failed", "failed", "confirmed", "doubt"], strict=True
    ):
        settle_all(answer(item, fate))
    shard = Shard.objects.get(job=job)
    assert (shard.status, shard.bad_streak) == ("running", 1)


# --- side by side --------------------------------------------------------------------------------


@pytest.mark.parametrize("fates", [("confirmed", "confirmed"), ("retry", "failed")])
def test_settle_two_at_once_of_the_same_calls_record_each_once(fates):
    """A lane and its heir both heard the answers; in opposite orders, so that they would block
    each other for ever if the order of locks were theirs."""
    job = make_job(shards=[ShardSpec(inflight=8, pending=2) for _ in range(4)])
    items = items_of(job, "submitted")

    async def patient(conn, answers):
        for _ in range(5):
            with suppress(psycopg.OperationalError):
                await settle(conn, answers)
                break
        else:
            raise AssertionError("never settled")

    async def go():
        async with connected(2) as conns:
            await asyncio.gather(
                patient(conns[0], [answer_of[i.pk, fates[0]] for i in items]),
                patient(conns[1], [answer_of[i.pk, fates[1]] for i in reversed(items)]),
            )

    answer_of = {(i.pk, fate): answer(i, fate) for i in items for fate in DECISIONS}
    run(go())
    assert_sound()
    assert not Item.objects.filter(job_id=job.pk, state="submitted").exists()
    assert sum(minute_sums(job)[k] for k in ("confirmed", "failed", "returned")) == 32


def test_settle_after_a_deadlock_is_safe_to_repeat():
    """The database breaks the knot by failing the settle; the same group again is recorded."""
    job = make_job(shards=[ShardSpec(inflight=1, pending=1) for _ in range(2)])
    first, second = items_of(job, "submitted")
    answers = [answer(first, "confirmed"), answer(second, "retry")]

    async def go(rival: psycopg.Connection) -> str:
        async with connected() as (conn,):
            settling = asyncio.create_task(settle(conn, answers))
            await asyncio.to_thread(blocked, conn.info.backend_pid)
            # it has the job's lock and waits for the item: ask for what it has
            try:
                await asyncio.to_thread(
                    rival.execute, "select 1 from batches_job for no key update"
                )
                rival.commit()
                broken = "rival lived"
            except psycopg.OperationalError:
                rival.rollback()
                broken = "rival died"
            try:
                await settling
            except psycopg.OperationalError:
                await settle(conn, answers)
                broken = "settle died"
            return broken

    with plain_connection() as rival:
        rival.execute("select 1 from batches_item where id = %s for update", [second.pk])
        run(go(rival))
    assert_sound()
    assert [i.state for i in items_of(job) if i.pk in (first.pk, second.pk)] == [
        "confirmed",
        "pending",
    ]


def blocked(pid: int) -> None:
    with plain_connection(autocommit=True) as watching:
        for _ in range(500):
            row = watching.execute("select cardinality(pg_blocking_pids(%s))", [pid]).fetchone()
            if row and row[0]:
                return
            watching.execute("select pg_sleep(0.01)")
    raise AssertionError("the session never waited")


def test_settle_and_rescue_of_the_same_calls_do_not_deadlock():
    """Both take calls, items, shards in one order: neither has to be broken off."""
    dead = make_lane(alive=False)
    job = make_job(shards=[ShardSpec(inflight=30, pending=1) for _ in range(6)], lane=dead)
    items = items_of(job, "submitted")
    answers = [answer(item, "confirmed") for item in items]

    def rescue() -> None:
        from django.db import connection

        try:
            rescue_lost_calls()
        finally:
            connection.close()

    async def go() -> None:
        async with connected() as (conn,):
            await asyncio.gather(settle(conn, answers), asyncio.to_thread(rescue))

    run(go())
    assert_sound()
    assert not Item.objects.filter(job_id=job.pk, state="submitted").exists()


def test_settle_of_plain_successes_does_not_wait_for_the_job_row():
    job, item = waiting_job("inflight")
    with plain_connection() as verb:
        verb.execute("select 1 from batches_job where id = %s for no key update", [job.pk])

        async def go() -> None:
            async with asyncio.timeout(5):
                async with connected() as (conn,):
                    await settle(conn, [answered])

        answered = answer(item, "confirmed")
        run(go())
    assert Item.objects.get(pk=item.pk).state == "confirmed"


def test_settle_refund_waits_for_a_cancel_in_progress_and_then_knows_of_it():
    job, item = waiting_job("in_doubt")
    answered = answer(item, "retry")
    with plain_connection() as verb:
        verb.execute("select 1 from batches_job where id = %s for no key update", [job.pk])
        verb.execute("update batches_job set status = 'cancelled'")

        async def go() -> None:
            async with connected() as (conn,):
                settling = asyncio.create_task(settle(conn, [answered]))
                await asyncio.to_thread(blocked, conn.info.backend_pid)
                verb.commit()
                await settling

        run(go())
    assert Item.objects.get(pk=item.pk).state == "abandoned"


def test_settle_texts_that_the_database_cannot_hold_are_cut_to_fit():
    _, item = waiting_job("inflight")
    ugly = Decision(
        Fate.FAILED, "refused", category="other", code="9" * 200, message="é\x00" * 900,
        msg_id="m" * 500, refund=True,
    )  # fmt: skip
    settle_all(answer(item, "failed", decision=ugly))
    item.refresh_from_db()
    assert (item.state, item.code, len(item.msg_id or "")) == ("failed", "9" * 40, 128)
    assert item.message is not None
    assert "\x00" not in item.message


# --- pace ----------------------------------------------------------------------------------------


def pace(item: Item) -> Account:
    return Account.objects.get(pk=item.shard.account_id)


def test_settle_rate_refusals_halve_down_to_a_twentieth_and_accepts_recover():
    lane = make_lane()
    job = make_job(shards=[ShardSpec(inflight=7, pending=1)], lane=lane)
    own(lane, job)
    slowing = Decision(
        Fate.RETRY, "refused", category="rate_limited", refund=True, counted=False,
        slow_down=True, hold=1.0, hold_reason="backoff",
    )  # fmt: skip
    seen = []
    items = items_of(job, "submitted")
    for item in items[:6]:
        settle_all(answer(item, "retry", decision=slowing))
        seen.append(pace(item).throttle)
    assert seen == [0.5, 0.25, 0.125, 0.0625, 0.05, 0.05]
    assert pace(items[0]).hold_reason == "backoff"
    settle_all(answer(items[6], "confirmed", throttled=True))
    assert pace(items[6]).throttle == pytest.approx(0.1)


def test_settle_shorter_hold_does_not_cut_a_longer_one():
    job = make_job(shards=[ShardSpec(inflight=2, pending=1)])
    first, second = items_of(job, "submitted")

    def holding(seconds: float) -> Decision:
        return Decision(
            Fate.RETRY, "not_sent", category="unreachable", refund=True, counted=False,
            hold=seconds, hold_reason="gateway",
        )  # fmt: skip

    settle_all(answer(first, "retry", decision=holding(300)))
    long = pace(first).hold_until
    settle_all(answer(second, "retry", decision=holding(1)))
    assert pace(first).hold_until == long


def test_settle_send_that_left_late_pushes_the_gate():
    _, item = waiting_job("inflight")
    settle_all(answer(item, "confirmed", late=30.0))
    ((ahead,),) = sql(
        "select extract(epoch from gate_at - clock_timestamp()) from batches_account where id = %s",
        item.shard.account_id,
    )
    assert 28 < ahead <= 30
