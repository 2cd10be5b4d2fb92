"""A turn that ends while a claim is under way."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

import pytest
from aiohttp import web

from batches.domain.states import JobStatus
from batches.engine import claiming
from batches.engine.lane import Turn, TurnResult
from batches.engine.state import TurnOptions
from batches.models import Call, Item
from tests.factories import ShardSpec, make_account, make_gateway, make_job

from .stage import Stage, play_turn, states

pytestmark = pytest.mark.django_db(transaction=True)


async def _serve(listener: socket.socket, received: list[tuple[str, str]]) -> web.AppRunner:
    async def answer(request: web.Request) -> web.Response:
        body = await request.json()
        received.append((body["guid"], body["toId"]))
        return web.json_response({"code": 0, "data": {"isSendSuccess": 1}})

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    return runner


def test_end_of_turn_during_a_claim_sends_and_settles_what_it_claimed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    gateway = make_gateway(dialect="path", base_url=f"http://127.0.0.1:{listener.getsockname()[1]}")
    accounts = [
        make_account(gateway=gateway, total_rate_per_min=60_000, online_reserve_per_min=0)
        for _ in range(5)
    ]
    job = make_job(
        status=JobStatus.RUNNING, shards=[ShardSpec(pending=20, account=a) for a in accounts]
    )
    stopping = False
    claim = claiming.store.claim

    async def slow_claim(*args: Any, **kwargs: Any) -> Any:
        nonlocal stopping
        result = await claim(*args, **kwargs)
        if result.claimed:
            stopping = True  # the turn starts to end before the lane knows what it claimed
            await asyncio.sleep(0.5)
        return result

    monkeypatch.setattr(claiming.store, "claim", slow_claim)
    received: list[tuple[str, str]] = []

    async def go() -> TurnResult:
        runner = await _serve(listener, received)
        try:
            return await Turn(should_stop=lambda: stopping, options=TurnOptions(turn=20.0)).run()
        finally:
            await runner.cleanup()

    result = asyncio.run(go())

    assert result.reason == "stop"
    assert received
    assert len(set(received)) == len(received)
    assert Item.objects.filter(job_id=job.pk, state="confirmed").count() == len(received)
    assert not Item.objects.filter(job_id=job.pk, state="submitted").exists()
    assert not Call.objects.filter(job_id=job.pk, answered_at__isnull=True).exists()


def test_turn_ends_before_its_worker_is_given_up_whatever_a_gateways_time_out(
    stage: Stage,
) -> None:
    options = TurnOptions()
    assert options.hard_turn < options.longest < 400
    stage.gateway.timeout_seconds = 300
    stage.gateway.save()
    job = stage.job(accounts=1, items=1)

    async def scene() -> float:
        async with stage.open() as sim:
            sim.faults.install({"kind": "hang", "seconds": 60})
            began = time.monotonic()
            await play_turn(options=TurnOptions(turn=0.5, hard_turn=1.5, longest=2.5))
            return time.monotonic() - began

    assert asyncio.run(scene()) < 8
    assert states(job) == {"in_doubt": 1}
