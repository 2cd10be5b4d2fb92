"""Callbacks: the account's echo of what it sent, posted in the background and repeated."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from contextlib import suppress

import aiohttp

#: Events that wait; beyond this they are dropped and counted.
MAX_WAITING = 20_000
#: Events in one POST where several wait for the same address.
MAX_BATCH = 20
#: A gateway repeats a callback that is not answered within 3 s.
ANSWER_SECONDS = 3.0
ATTEMPTS = 3
WORKERS = 4


class Callbacks:
    """Who is called back, and what still has to be."""

    def __init__(self) -> None:
        #: by account; the empty key serves all others
        self.urls: dict[str, str] = {}
        self.counts = dict.fromkeys(("queued", "sent", "failed", "lost", "dropped"), 0)
        self._waiting: deque[tuple[str, Mapping[str, object]]] = deque()
        self._awake = asyncio.Event()
        self._delayed: set[asyncio.TimerHandle] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._session: aiohttp.ClientSession | None = None

    def start(self) -> None:
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS), trust_env=False
        )
        self._tasks = [asyncio.create_task(self._work(self._session)) for _ in range(WORKERS)]

    async def stop(self) -> None:
        self.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    def clear(self) -> None:
        """Forget what waits; the addresses stay."""
        self._waiting.clear()
        for handle in self._delayed:
            handle.cancel()
        self._delayed.clear()

    def post(self, guid: str, event: Mapping[str, object], delay: float | None = 0.0) -> None:
        """Queue an event for whoever listens to the account; `delay` None loses it."""
        url = self.urls.get(guid) or self.urls.get("")
        if not url:
            return
        if delay is None:
            self.counts["lost"] += 1
        elif delay > 0:
            self._delay(delay, url, event)
        else:
            self._queue(url, event)

    def _delay(self, seconds: float, url: str, event: Mapping[str, object]) -> None:
        def due() -> None:
            self._delayed.discard(handle)
            self._queue(url, event)

        handle = asyncio.get_running_loop().call_later(seconds, due)
        self._delayed.add(handle)

    def _queue(self, url: str, event: Mapping[str, object]) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self.counts["dropped"] += 1
            return
        self.counts["queued"] += 1
        self._waiting.append((url, event))
        self._awake.set()

    async def _work(self, session: aiohttp.ClientSession) -> None:
        while True:
            while not self._waiting:
                self._awake.clear()
                await self._awake.wait()
            url, event = self._waiting.popleft()
            events = [event]
            while len(events) < MAX_BATCH and self._waiting and self._waiting[0][0] == url:
                events.append(self._waiting.popleft()[1])
            delivered = await _deliver(session, url, events)
            self.counts["sent" if delivered else "failed"] += len(events)


async def _deliver(
    session: aiohttp.ClientSession, url: str, events: list[Mapping[str, object]]
) -> bool:
    body = {"code": 0, "msg": "成功", "data": events}
    for attempt in range(ATTEMPTS):
        if attempt:
            await asyncio.sleep(1.0)
        with suppress(aiohttp.ClientError, TimeoutError, OSError):
            async with session.post(url, json=body) as response:
                if response.status < 300:
                    return True
    return False


def echo(
    *, guid: str, target: str, content: str, request_id: str,
    server_id: str, unique_id: str, seq: int, now: float,
) -> dict[str, object]:  # fmt: skip
    """Event 15000: the account's own message, as it appears in its conversation."""
    return {
        "guid": guid,
        "userId": guid,
        "requestId": request_id,
        "cmd": 15000,
        "msgType": 2,
        "msgData": {"content": content, "toId": target},
        "msgServerId": int(server_id),
        "msgUniqueIdentifier": unique_id,
        "senderId": guid,
        "fromRoomId": target if target.startswith("10") else "0",
        "seq": seq,
        "timestamp": int(now),
    }


def state_change(*, guid: str, code: int, now: float) -> dict[str, object]:
    """Event 11016: the account's login state changed to `code`."""
    return {
        "guid": guid,
        "userId": guid,
        "requestId": "",
        "cmd": 11016,
        "msgType": 0,
        "msgData": {"code": code},
        "msgServerId": 0,
        "msgUniqueIdentifier": "",
        "senderId": guid,
        "fromRoomId": "0",
        "seq": 0,
        "timestamp": int(now),
    }
