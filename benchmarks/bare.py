"""The lane's own HTTP client with nothing behind it: the same requests, no database.

python -m benchmarks.bare     reads what is pending, then posts it, one call per account at a
                              time; prints JSON
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque

import django

AT_ONCE = 256


async def post_all(accounts: deque[list[object]]) -> dict[str, float]:
    from batches.engine.transport import Answer, Transport
    from batches.gateways.base import CallSpec
    from batches.gateways.registry import get_gateway

    async def work() -> int:
        done = 0
        while accounts:
            guid, config, compiled, items = accounts.popleft()
            adapter = get_gateway(config.kind)
            for number, target, fields in items:
                call = CallSpec(
                    request_id=str(number),
                    guid=guid,
                    operation=compiled.operation,
                    targets=(compiled.to_target(target, fields),),
                )
                answer = await transport.post(adapter.build(config, call), timeout=30.0)
                done += isinstance(answer, Answer)
        return done

    async with Transport() as transport:
        started, cpu = time.monotonic(), time.process_time()
        done = sum(await asyncio.gather(*(work() for _ in range(AT_ONCE))))
        return {
            "sent": done,
            "seconds": time.monotonic() - started,
            "cpu": time.process_time() - cpu,
        }


def main() -> None:
    django.setup()
    import uvloop

    from batches.actions.registry import get_action
    from batches.engine.memory import few_collections
    from batches.gateways.base import GatewayConfig
    from batches.models import Gateway, Job
    from benchmarks.rows import rows

    gateway = Gateway.objects.get()
    config = GatewayConfig(
        kind=gateway.kind,
        base_url=gateway.base_url,
        dialect=gateway.dialect,
        token=gateway.token,
        options=gateway.options,
    )
    compiled = {
        job.pk: get_action(job.action).compile(job.params, job.columns, job.mapping)
        for job in Job.objects.all()
    }
    found: dict[int, list[object]] = {}
    for shard, job, guid, *item in rows(
        "select i.shard_id, i.job_id, a.guid, i.id, i.target, i.fields from batches_item i"
        " join batches_shard s on s.id = i.shard_id join batches_account a on a.id = s.account_id"
        " where i.state = 'pending' order by i.shard_id, i.seq"
    ):
        found.setdefault(shard, [guid, config, compiled[job], []])[3].append(item)
    with few_collections():
        told = uvloop.run(post_all(deque(found.values())))
    print(json.dumps(told))


if __name__ == "__main__":
    main()
