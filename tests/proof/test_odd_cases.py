"""Cases that random histories led to, or that only two failures at once can show."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, LiteralString

import psycopg
import pytest

from batches.domain.decisions import Decision, Fate
from batches.engine import settling
from batches.engine.picking import _together
from batches.engine.plan import PlannedItem, ShardPlan
from batches.engine.state import LaneState, TurnOptions
from batches.models import Call, Job
from batches.store.claim import unsent_calls
from batches.store.connections import Connection, together
from tests.factories import ShardSpec, items_of, make_lane
from tests.integration.store.support import (
    answer,
    assert_sound,
    claim,
    connected,
    owned_job,
    run,
    settle_all,
)


@pytest.mark.django_db(transaction=True)
def test_claim_item_named_twice_in_one_call_is_charged_and_carried_once():
    lane = make_lane()
    job = owned_job(lane, ShardSpec(pending=3), budget_limit=3)
    one, two, _three = (item.pk for item in items_of(job))
    result = claim(lane=lane.pk, items=[one, one, two], size=3)
    assert sorted(c.item_id for c in result.claimed) == [one, two]
    assert Call.objects.get().item_ids == [one, two]
    assert Job.objects.get(pk=job.pk).budget_used == 2
    assert_sound()


def test_pick_item_that_is_twice_in_the_look_ahead_names_it_once():
    first, second = (PlannedItem(n, n, f"t{n}", []) for n in (1, 2))
    shard = ShardPlan(1, 1, 1)
    shard.buffer.extend([first, second, first])
    job: Any = SimpleNamespace(
        compiled=SimpleNamespace(to_target=lambda target, _fields: target, operation="send_text")
    )
    gateway: Any = SimpleNamespace(
        config=None,
        adapter=SimpleNamespace(fitting=lambda _config, _operation, targets: len(targets)),
    )
    assert _together(shard, job, gateway, 3) == [first, second]


@pytest.mark.django_db(transaction=True)
def test_settle_answer_with_text_that_no_database_holds_is_recorded():
    lane = make_lane()
    job = owned_job(lane, ShardSpec(pending=2))
    claim(lane=lane.pk, items=[item.pk for item in items_of(job)[:1]])
    item = items_of(job)[0]
    odd = "a\x00b\ud800c"
    decision = Decision(
        Fate.FAILED, "refused", category="other", code=odd, message=odd, msg_id=odd, refund=True
    )
    settle_all(answer(item, "failed", decision=decision))
    item.refresh_from_db()
    assert (item.state, item.code, item.message, item.msg_id) == ("failed", *["ab?c"] * 3)
    assert_sound()


@pytest.mark.django_db(transaction=True)
def test_answer_that_cannot_be_recorded_at_all_is_not_taken_for_a_call_never_sent(
    monkeypatch: pytest.MonkeyPatch,
):
    lane = make_lane()
    job = owned_job(lane)
    (made,) = claim(lane=lane.pk, items=[items_of(job)[0].pk]).claimed
    state = LaneState(lane=lane.pk, options=TurnOptions(), should_stop=lambda: False)
    state.open_calls.add(made.call_id)
    settler = settling.Settler(state)

    async def refused(*_arguments: object) -> set[int]:
        raise psycopg.DataError("no")

    async def scene() -> list[int]:
        async with connected() as (conn,):
            settler._conn = conn
            monkeypatch.setattr(settling, "settle", refused)
            await settler._settle([answered])
            # what the claim does after its connection broke
            found = await unsent_calls(conn, lane=lane.pk, known=list(state.open_calls))
            return [row.id for row in found]

    answered = answer(items_of(job)[0], "confirmed")
    assert run(scene()) == []


async def _group(conn: Connection, *statements: LiteralString) -> None:
    async with together(conn):
        for statement in statements:
            await conn.execute(statement)


@pytest.mark.django_db(transaction=True)
def test_group_whose_commit_is_refused_raises_and_closes_its_connection():
    async def scene() -> None:
        async with connected() as (conn,):
            await conn.execute("create temp table u (a int unique deferrable initially deferred)")
            with pytest.raises(psycopg.OperationalError):
                await _group(conn, "insert into u values (1), (1)")
            assert conn.closed, "it would give one statement's results for another's"

    run(scene())


@pytest.mark.django_db(transaction=True)
def test_group_with_a_refused_statement_keeps_its_connection_and_nothing_else():
    async def scene() -> None:
        async with connected() as (conn,):
            await conn.execute("create temp table u (a int unique)")
            with pytest.raises(psycopg.IntegrityError):
                await _group(conn, "insert into u values (7)", "insert into u values (1), (1)")
            assert not conn.closed
            assert await (await conn.execute("select count(*) from u")).fetchall() == [(0,)]

    run(scene())
