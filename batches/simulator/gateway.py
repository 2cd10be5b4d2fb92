"""The gateway itself: from a request to an effect, a callback, and an answer or a failure."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from . import wire
from .callbacks import Callbacks, echo
from .failures import Failures, refuse_http
from .faults import Draw, FaultBook
from .limits import Limits
from .record import Effect, Record

_SENDS = frozenset({"send_text", "send_group_msg"})
_CHANGES = _SENDS | {"set_group_welcome", "tag_customers"}


@dataclass(frozen=True, slots=True)
class SimulatorOptions:
    """How the simulator behaves unless a fault says otherwise."""

    latency_seconds: tuple[float, float] = (0.0, 0.0)
    account_per_min: int | None = 60
    ip_per_min: int | None = 6000
    refusal: str = "http_429"
    success_code: int = 0
    #: the token that every call must bring, if any
    token: str = ""
    seed: int | None = None
    record: Path | None = None


@dataclass(frozen=True, slots=True)
class _Call:
    """One request as understood."""

    operation: str
    guid: str
    request_id: str
    params: Mapping[str, object]


class SimulatedGateway:
    """All state of one simulator."""

    def __init__(
        self, options: SimulatorOptions, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.options = options
        self.clock = clock
        self.rng = random.Random(options.seed)
        self.faults = FaultBook(self.rng)
        self.limits = Limits(options.account_per_min, options.ip_per_min, options.refusal)
        self.record = Record(options.record)
        self.callbacks = Callbacks()
        self.failures = Failures()
        self.requests = 0
        self.operations: Counter[str] = Counter()
        #: ids must not come again after a restart
        self._boot = int(time.time())
        for effect in self.record.effects:
            if effect.ts > clock() - 60:
                self.limits.add(effect.guid, "127.0.0.1", effect.ts)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one POST to the gateway."""
        self.requests += 1
        body = await request.read()
        try:
            call = self._read(request, body)
        except wire.Refusal as refusal:
            return _answer(wire.answer(refusal.code, refusal.message))
        except _HttpRefusal as refusal:
            return _answer(wire.answer(refusal.status, refusal.message), status=refusal.status)
        if call.operation not in _CHANGES:
            return self._read_only(call)
        try:
            targets = wire.read_targets(call.operation, call.params)
        except wire.Refusal as refusal:
            return _answer(wire.answer(refusal.code, refusal.message))
        draw = self.faults.draw(call.guid, call.operation, targets.ids)
        fault = draw.main
        if fault and (early := self.failures.before_effect(request, fault)):
            await self._wait(draw)
            return early
        reply = b""
        if not fault or fault.effect:
            address, now = request.remote or "", self.clock()
            wanted = sum(not self._refusal(target, draw) for target in targets.each)
            room = self.limits.grant(call.guid, address, wanted, now)
            if wanted and not room:
                pause = self.limits.retry_after(call.guid, address, now)
                await self._wait(draw)
                return refuse_http(self.limits.refusal, pause)
            # The effect comes first and the latency after it: who gives up waiting is in doubt.
            reply = self._take_effect(call, targets, address, draw, room)
        await self._wait(draw)
        return await self.failures.after_effect(request, fault, reply) if fault else _answer(reply)

    async def _wait(self, draw: Draw) -> None:
        least, most = self.options.latency_seconds
        seconds = draw.extra_seconds + (self.rng.uniform(least, most) if most else 0.0)
        if seconds:
            await self.failures.sleep(seconds)

    def _read(self, request: web.BaseRequest, body: bytes) -> _Call:
        path = request.path
        try:
            payload = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise _HttpRefusal(400, "body is not JSON") from error
        if not isinstance(payload, dict):
            raise wire.Refusal(wire.PARAM, "请求体必须是 JSON 对象")
        token_header = wire.METHOD_PATHS.get(path)
        if token_header:
            operation = wire.METHODS.get(str(payload.get("method")))
            params = payload.get("params")
            if operation is None or not isinstance(params, dict):
                raise wire.Refusal(wire.PARAM, f"未知的 method {payload.get('method')!r}")
        else:
            operation, params = wire.PATHS.get(path), payload
            if operation is None:
                raise _HttpRefusal(404, f"no such path {path}")
        token = self.options.token
        if token and request.headers.get(token_header or "WECOM-TOKEN") != token:
            raise _HttpRefusal(401, "token missing or wrong")
        guid = params.get("guid")
        if not isinstance(guid, str) or not guid:
            raise wire.Refusal(wire.PARAM, "缺少 guid，或不是字符串")
        request_id = params.get("requestId") or request.headers.get("X-Request-Id", "")
        return _Call(operation, guid, str(request_id), params)

    def _read_only(self, call: _Call) -> web.Response:
        if call.operation == "check_login":
            data: object = {"userOnlineStatus": 0 if self.faults.expired(call.guid) else 1}
        elif self.faults.expired(call.guid):
            return _answer(wire.answer(11024, wire.MESSAGES[11024]))
        else:
            data = wire.listing(call.operation, call.guid, call.params)
        return _answer(wire.answer(self.options.success_code, "成功", data))

    def _refusal(self, target: wire.Target, draw: Draw) -> int:
        """The code that refuses one target of several; 0 for none."""
        return target.refusal or draw.of(target.id).code

    def _take_effect(
        self, call: _Call, targets: wire.Targets, address: str, draw: Draw, room: int
    ) -> bytes:
        """Record each target that there is room for, queue its echo, and word the answer."""
        success = self.options.success_code
        if not targets.listed_by:
            only = self._record(call, targets.each[0], targets.content, address, draw)
            if call.operation == "send_text":
                return wire.sent(success, only.server_id, only.msg_id, only.seq, only.ts)
            return wire.answer(success, "成功", {})
        lines: list[object] = []
        over = 45009 if self.limits.refusal == "http_429" else int(self.limits.refusal)
        for target in targets.each:
            code, ids = self._refusal(target, draw), None
            if not code and not room:
                code = over
            elif not code:
                room -= 1
                effect = self._record(call, target, targets.content, address, draw)
                code, ids = success, (effect.server_id, effect.msg_id)
            if draw.of(target.id).is_mentioned:
                lines.append(wire.result(targets.listed_by, target.id, code, ids))
        return wire.answer(success, "成功", {"results": lines})

    def _record(
        self, call: _Call, target: wire.Target, content: str, address: str, draw: Draw
    ) -> Effect:
        """One target that took effect."""
        now, seq = self.clock(), self.record.next_seq
        sends = call.operation in _SENDS
        server_id = str(self._boot * 10**7 + seq) if sends else ""
        unique_id = f"SIM{self._boot:x}-{seq:x}" if sends else ""
        effect = Effect(
            seq, now, call.guid, call.operation, target.id, content,
            call.request_id, unique_id, server_id, target.labels,
        )  # fmt: skip
        self.record.append(effect)
        self.limits.add(call.guid, address, now)
        self.operations[call.operation] += 1
        if sends and self.callbacks.urls:
            event = echo(
                guid=call.guid, target=target.id, content=content,
                request_id=call.request_id, server_id=server_id, unique_id=unique_id,
                seq=seq, now=now,
            )  # fmt: skip
            self.callbacks.post(call.guid, event, draw.delay(target.id))
        return effect

    def reset(self) -> None:
        """Forget what happened: effects, windows, faults, waiting callbacks, counts."""
        self.record.clear()
        self.limits.clear()
        self.faults.remove()
        self.callbacks.clear()
        self.callbacks.counts = dict.fromkeys(self.callbacks.counts, 0)
        self.requests = 0
        self.operations.clear()

    def stats(self) -> dict[str, object]:
        """Counts since the last reset."""
        return {
            "requests": self.requests,
            "total": len(self.record.effects),
            "operations": dict(self.operations),
            **self.limits.stats(self.clock()),
            "callbacks": dict(self.callbacks.counts),
            "faults": {fault.id: fault.fired for fault in self.faults.faults},
        }


class _HttpRefusal(Exception):  # noqa: N818 - an answer, not a failure of the simulator
    """The HTTP server itself refuses."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def _answer(body: bytes, *, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")
