"""Carries gateway requests over aiohttp, once each, and says what is known afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import aiohttp

from batches.domain.categories import Category
from batches.domain.outcomes import NotSent, Unknown
from batches.gateways.base import HttpRequest

#: seconds a connection is kept idle: shorter than any gateway keeps it, so that it is we who
#: close it and no request meets a connection that is just being closed
KEEPALIVE = 3.0
CONNECT_TIMEOUT = 5.0
#: bytes of an answer that are read; a larger one proves nothing
MAX_BODY = 1 << 20


@dataclass(slots=True)
class Answer:
    """An answer read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes


#: asked once the connection of this task's request is there, right before its first byte
_DOOR: ContextVar[Callable[[], bool] | None] = ContextVar("_DOOR", default=None)


class _HeldBackError(Exception):
    """The request may not leave any more; not a byte of it has."""


class _Connector(aiohttp.TCPConnector):
    """Asks at the door, and keeps no connection on which something arrived while it was idle.

    aiohttp would take that for the answer to the next request: one item would be recorded with
    another one's answer. Proved by test_transport.py, also for the day `_get` changes its name.
    """

    async def connect(self, *args: Any, **kwargs: Any) -> Any:
        connection = await super().connect(*args, **kwargs)
        door = _DOOR.get()
        if door is not None and not door():
            connection.release()
            raise _HeldBackError
        return connection

    async def _get(self, *args: Any, **kwargs: Any) -> Any:
        while (kept := await super()._get(*args, **kwargs)) is not None:
            if kept.protocol is not None and not kept.protocol.should_close:
                break
            kept.close()
        return kept


class Transport:
    """One client session of a lane's turn.

    A request is written at most once: aiohttp repeats idempotent methods on a stale connection,
    never a POST (tests/integration/engine/test_transport.py proves it); redirects are not
    followed.
    """

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=_Connector(
                limit=0, keepalive_timeout=KEEPALIVE, ttl_dns_cache=60, use_dns_cache=True
            ),
            auto_decompress=True,
            raise_for_status=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        self._timeouts: dict[float, aiohttp.ClientTimeout] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def post(
        self,
        request: HttpRequest,
        *,
        door: Callable[[], bool] | None = None,
        timeout: float,  # noqa: ASYNC109 - the client's own time-out tells its phases apart
    ) -> Answer | NotSent | Unknown:
        """Send one request and wait up to `timeout` seconds for the whole answer.

        `door` is asked when all is ready for the first byte; False sends nothing. Raises only
        `asyncio.CancelledError`; then nothing is known of the request.
        """
        _DOOR.set(door)
        limits = self._timeouts.get(timeout)
        if limits is None:
            limits = self._timeouts[timeout] = aiohttp.ClientTimeout(
                total=timeout, sock_connect=min(CONNECT_TIMEOUT, timeout)
            )
        try:
            async with self._session.request(
                request.method,
                request.url,
                data=request.body,
                headers=request.headers,
                allow_redirects=False,
                timeout=limits,
            ) as response:
                body = await response.content.read(MAX_BODY + 1)
                while len(body) <= MAX_BODY and not response.content.at_eof():
                    body += await response.content.read(MAX_BODY + 1 - len(body))
                if len(body) > MAX_BODY:
                    response.close()
                    return Unknown(Category.UNREADABLE, f"answer larger than {MAX_BODY} bytes")
                return Answer(response.status, response.headers, body)
        except (
            aiohttp.ClientConnectorError,
            aiohttp.ConnectionTimeoutError,
            aiohttp.InvalidURL,
            aiohttp.NonHttpUrlClientError,
        ) as error:
            return NotSent(Category.UNREACHABLE, error_words(error))
        except _HeldBackError:
            return NotSent(Category.LOST, "held back at the last moment")
        except TimeoutError:
            return Unknown(Category.TIMEOUT, f"no answer within {timeout:g} s")
        except aiohttp.ClientPayloadError as error:
            return Unknown(Category.UNREADABLE, error_words(error))
        except (aiohttp.ClientError, OSError) as error:
            return Unknown(Category.RESET, error_words(error))
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the request may have left
            return Unknown(Category.UNREADABLE, error_words(error))


def error_words(error: BaseException) -> str:
    """What a library said, as a result's message."""
    return f"{type(error).__name__}: {error}"[:300]
