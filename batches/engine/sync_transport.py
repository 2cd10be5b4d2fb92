"""Carries one gateway request over requests, once, for whoever waits for its answer."""

from __future__ import annotations

import io
import ssl
import time
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError, ReadTimeoutError

from batches.domain.categories import Category
from batches.domain.outcomes import NotSent, Unknown
from batches.gateways.base import HttpRequest

from .transport import CONNECT_TIMEOUT, MAX_BODY, Answer, error_words

_CHUNK = 1 << 16


class _Body(io.BytesIO):
    """A request's body that knows whether any of it was handed to the connection.

    The library asks for it only when the connection stands and the headers are written. So as
    long as `left` is False the gateway cannot have had a whole request, whatever went wrong.
    """

    left = False

    def read(self, size: int | None = -1, /) -> bytes:
        self.left = True
        return super().read(size)

    def __iter__(self) -> _Body:
        self.left = True
        return self


class _Adapter(HTTPAdapter):
    """Trusts the system's certificates too, as the lane's transport does; repeats nothing."""

    def __init__(self) -> None:
        super().__init__(max_retries=0)  # urllib3 would otherwise be free to send a POST twice

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, ssl_context=ssl.create_default_context(), **kwargs)


def post(request: HttpRequest, *, timeout: float) -> Answer | NotSent | Unknown:
    """Send one request on a connection of its own and wait up to `timeout` seconds.

    Never raises. Redirects are not followed, and neither proxies nor passwords of the
    environment are used: they would not be the lane's way.
    """
    body = _Body(request.body)
    end = time.monotonic() + timeout
    with requests.Session() as session:
        session.trust_env = False
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Adapter())
        try:
            with session.request(
                request.method,
                request.url,
                data=body,
                headers={**request.headers, "Accept-Encoding": "identity", "Connection": "close"},
                allow_redirects=False,
                stream=True,
                timeout=(min(CONNECT_TIMEOUT, timeout), timeout),
            ) as response:
                return _read(response, end)
        except Exception as error:  # noqa: BLE001 - whatever it is, the request may have left
            if not body.left:
                return NotSent(Category.UNREACHABLE, error_words(error))
            if isinstance(error, requests.Timeout | ReadTimeoutError | TimeoutError):
                return Unknown(Category.TIMEOUT, f"no answer within {timeout:g} s")
            if isinstance(error, requests.ConnectionError | OSError):
                return Unknown(Category.RESET, error_words(error))
            return Unknown(Category.UNREADABLE, error_words(error))


def _read(response: requests.Response, end: float) -> Answer | Unknown:
    """The answer's body as far as it is wanted: a larger or later one proves nothing."""
    body = bytearray()
    try:
        # `read1` gives what has come; `read` would wait for a full chunk of a slow answer.
        while chunk := response.raw.read1(_CHUNK, decode_content=True):
            body += chunk
            if len(body) > MAX_BODY:
                return Unknown(Category.UNREADABLE, f"answer larger than {MAX_BODY} bytes")
            if time.monotonic() > end:
                return Unknown(Category.TIMEOUT, "the answer did not end in time")
    except ReadTimeoutError:
        return Unknown(Category.TIMEOUT, "the answer did not end in time")
    except HTTPError as error:
        return Unknown(Category.UNREADABLE, error_words(error))
    return Answer(response.status_code, dict(response.headers), bytes(body))
