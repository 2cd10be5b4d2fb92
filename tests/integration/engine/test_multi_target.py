"""Several targets in one request: one call, one charge, a result for each."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from aiohttp import web

from batches.domain.states import JobStatus
from batches.engine.lane import Turn
from batches.engine.state import TurnOptions
from batches.models import Account, Call, Item, Job
from batches.selectors.verify import verify
from tests.factories import ShardSpec, items_of, make_account, make_gateway, make_job

pytestmark = pytest.mark.django_db(transaction=True)


def run_against(listener: socket.socket, refused: set[str]) -> list[dict[str, Any]]:
    """Run a turn to its idle end; the bodies the gateway got."""
    bodies: list[dict[str, Any]] = []

    async def answer(request: web.Request) -> web.Response:
        body = await request.json()
        bodies.append(body)
        results = [
            {"toId": t, "code": 40096, "msg": "no such contact"}
            if t in refused
            else {"toId": t, "code": 0, "isSendSuccess": 1, "msgUniqueIdentifier": f"m-{t}"}
            for t in body.get("toIdList", [])
        ]
        return web.json_response({"code": 0, "data": {"isSendSuccess": 1, "results": results}})

    async def go() -> None:
        app = web.Application()
        app.router.add_post("/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.SockSite(runner, listener).start()
        try:
            await Turn(options=TurnOptions(turn=30.0, idle=0.5)).run()
        finally:
            await runner.cleanup()

    asyncio.run(go())
    return bodies


def multi_job(pending: int, call_size: int, **account: Any) -> tuple[Job, Account, socket.socket]:
    listener = socket.create_server(("127.0.0.1", 0))
    gateway = make_gateway(
        dialect="path",
        base_url=f"http://127.0.0.1:{listener.getsockname()[1]}",
        options={"multi_target": True},
    )
    owner = make_account(gateway=gateway, **account)
    job = make_job(
        status=JobStatus.RUNNING,
        params={"content": "同一内容"},
        call_size=call_size,
        shards=[ShardSpec(pending=pending, account=owner)],
    )
    return job, owner, listener


def test_run_with_call_size_sends_groups_and_settles_each_target() -> None:
    job, _, listener = multi_job(45, 20, total_rate_per_min=100_000)
    targets = [item.target for item in items_of(job)]
    refused = {targets[3], targets[41]}

    bodies = run_against(listener, refused)

    sizes = [len(body["toIdList"]) for body in bodies]
    assert sizes == [20, 20, 5]
    assert [t for body in bodies for t in body["toIdList"]] == targets
    failed = Item.objects.filter(job_id=job.pk, state="failed")
    assert {(i.target, i.category, i.code) for i in failed} == {
        (t, "target_invalid", "40096") for t in refused
    }
    confirmed = Item.objects.filter(job_id=job.pk, state="confirmed")
    assert {(i.target, i.msg_id) for i in confirmed} == {
        (t, f"m-{t}") for t in targets if t not in refused
    }
    job.refresh_from_db()
    assert job.status == JobStatus.COMPLETED
    assert job.budget_used == 43
    assert Call.objects.filter(job_id=job.pk).count() == 3
    assert list(verify().findings) == []


def test_run_with_budget_inside_a_group_cuts_the_call_to_the_budget() -> None:
    job, _, listener = multi_job(30, 20, total_rate_per_min=100_000)
    Job.objects.filter(pk=job.pk).update(budget_limit=27)

    bodies = run_against(listener, set())

    assert [len(b.get("toIdList", [b.get("toId")])) for b in bodies] == [20, 7]
    job.refresh_from_db()
    assert (job.status, job.pause_reason, job.budget_used) == (JobStatus.PAUSED, "budget", 27)


def test_claim_of_a_group_charges_the_gate_for_every_target() -> None:
    job, account, listener = multi_job(60, 16, total_rate_per_min=48)

    async def one_second() -> None:
        await Turn(options=TurnOptions(turn=1.0, hard_turn=1.0)).run()

    listener.close()  # nobody answers: the call is not sent, the charge at the gate stays
    asyncio.run(one_second())

    account.refresh_from_db()
    # 48 a minute in calls of 16: three calls a minute, so the next one comes after 20 s
    assert account.gate_size == 16
    assert 20.0 < account.gate_step < 21.5
    assert Item.objects.filter(job_id=job.pk, state="pending").count() == 60
