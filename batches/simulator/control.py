"""`/_sim/…`: what took effect, faults, limits, callbacks, statistics."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from urllib.parse import urlsplit

from aiohttp import web

from .callbacks import state_change
from .faults import FaultError
from .gateway import SimulatedGateway

Handler = Callable[[SimulatedGateway, web.BaseRequest], Awaitable[web.StreamResponse]]


class BadRequestError(ValueError):
    """What was posted cannot be used; answered with 400 and this text."""


async def _calls(gateway: SimulatedGateway, request: web.BaseRequest) -> web.StreamResponse:
    since = request.query.get("since", "0")
    if not (since.isascii() and since.isdigit()):
        raise BadRequestError("since is a whole number: effects with a higher seq are given")
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    await response.prepare(request)
    with suppress(ConnectionError):
        for chunk in gateway.record.lines(int(since)):
            await response.write(chunk)
    return response


async def _faults(gateway: SimulatedGateway, _: web.BaseRequest) -> web.StreamResponse:
    return _json([fault.to_json() for fault in gateway.faults.faults])


async def _add_fault(gateway: SimulatedGateway, request: web.BaseRequest) -> web.StreamResponse:
    try:
        fault = gateway.faults.install(await _body(request))
    except FaultError as error:
        raise BadRequestError(str(error)) from error
    guid = fault.scope.get("guid")
    if fault.kind == "credential_expired" and guid:
        event = state_change(guid=guid, code=fault.code, now=gateway.clock())
        gateway.callbacks.post(guid, event)
    return _json(fault.to_json(), status=201)


async def _drop_faults(gateway: SimulatedGateway, request: web.BaseRequest) -> web.StreamResponse:
    fault_id = request.query.get("id")
    if fault_id is not None and not (fault_id.isascii() and fault_id.isdigit()):
        raise BadRequestError("id is the number of a fault")
    return _json({"removed": gateway.faults.remove(None if fault_id is None else int(fault_id))})


async def _stats(gateway: SimulatedGateway, _: web.BaseRequest) -> web.StreamResponse:
    return _json(gateway.stats())


async def _reset(gateway: SimulatedGateway, _: web.BaseRequest) -> web.StreamResponse:
    gateway.reset()
    return _json({"reset": True})


async def _callback(gateway: SimulatedGateway, request: web.BaseRequest) -> web.StreamResponse:
    body = await _body(request)
    _only(body, {"url", "guid"})
    url, guid = body.get("url"), body.get("guid", "")
    if not isinstance(guid, str):
        raise BadRequestError("guid is a string; without it the address serves all accounts")
    if url is None:
        gateway.callbacks.urls.pop(guid, None)
    elif isinstance(url, str) and urlsplit(url).scheme in ("http", "https"):
        gateway.callbacks.urls[guid] = url
    else:
        raise BadRequestError("url is an http(s) address, or null to stop calling back")
    return _json(gateway.callbacks.urls)


async def _limits(gateway: SimulatedGateway, request: web.BaseRequest) -> web.StreamResponse:
    limits = gateway.limits
    if request.method == "POST":
        body = await _body(request)
        _only(body, {"account_per_min", "ip_per_min", "refusal"})
        account = _limit(body.get("account_per_min", limits.account_per_min), "account_per_min")
        address = _limit(body.get("ip_per_min", limits.ip_per_min), "ip_per_min")
        limits.refusal = refusal_wording(body.get("refusal", limits.refusal))
        limits.account_per_min, limits.ip_per_min = account, address
    return _json(
        {
            "account_per_min": limits.account_per_min,
            "ip_per_min": limits.ip_per_min,
            "refusal": limits.refusal,
        }
    )


ROUTES: dict[tuple[str, str], Handler] = {
    ("GET", "/_sim/calls"): _calls,
    ("GET", "/_sim/faults"): _faults,
    ("POST", "/_sim/faults"): _add_fault,
    ("DELETE", "/_sim/faults"): _drop_faults,
    ("GET", "/_sim/stats"): _stats,
    ("POST", "/_sim/reset"): _reset,
    ("POST", "/_sim/callback"): _callback,
    ("GET", "/_sim/limits"): _limits,
    ("POST", "/_sim/limits"): _limits,
}


async def handle_control(gateway: SimulatedGateway, request: web.BaseRequest) -> web.StreamResponse:
    """Answer a control request; whatever is wrong with it is said in `error`."""
    handler = ROUTES.get((request.method, request.path))
    if handler is None:
        known = [f"{method} {path}" for method, path in ROUTES]
        return _json({"error": "no such control request", "known": known}, status=404)
    try:
        return await handler(gateway, request)
    except BadRequestError as error:
        return _json({"error": str(error)}, status=400)


def refusal_wording(value: object) -> str:
    """`http_429`, or an error code as text. Raises BadRequestError."""
    text = str(value)
    if text == "http_429" or (text.isascii() and text.isdigit()):
        return text
    raise BadRequestError("refusal is http_429 or an error code such as 45009")


async def _body(request: web.BaseRequest) -> dict[str, object]:
    try:
        body = json.loads(await request.read())
    except (ValueError, RecursionError) as error:
        raise BadRequestError("the body is not JSON") from error
    if not isinstance(body, dict):
        raise BadRequestError("the body is not a JSON object")
    return body


def _only(body: dict[str, object], known: set[str]) -> None:
    if unknown := sorted(set(body) - known):
        raise BadRequestError(f"unknown keys {unknown}; known: {sorted(known)}")


def _limit(value: object, name: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadRequestError(f"{name} is a whole number from 1, or null for no limit")
    return value


def _json(value: object, *, status: int = 200) -> web.Response:
    return web.json_response(value, status=status)
