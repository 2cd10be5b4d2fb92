"""A process that takes what it can get for a while and prints the slots of its permits (µs).

Says `ready`, waits for a line with the moment to end at, takes, prints.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from batches.gates.gateway import GatewayGate

GATEWAY = 4_000_001


async def main(redis_url: str, rate: int) -> None:
    permits: list[tuple[float, int, float]] = []
    async with GatewayGate(redis_url) as gate:
        print("ready", flush=True)
        until = float(sys.stdin.readline())
        while (asked := time.time()) < until:
            grant = await gate.take(
                GATEWAY, 3, rate_per_min=rate, max_concurrent=None, token_ttl_ms=0
            )
            heard = time.time()
            slots = [int(last.split()[0]) for last in grant.trail[1:]]
            permits += [(asked * 1e6, slot, heard * 1e6) for slot in slots]
            await asyncio.sleep(grant.wait_ms / 1000)
    print(json.dumps(permits))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
