"""The gateways that the conformance suite runs over; a new adapter adds its cases here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from batches.gateways.base import CallSpec, GatewayConfig, HttpRequest, Operation, TargetSpec

GUID = "1688850000000000"
TARGET = "7881300000000000"


@dataclass(frozen=True)
class Case:
    """One gateway as configured, and what its wire format says."""

    name: str
    config: GatewayConfig
    #: the answer that proves success, with the message id given
    success: Callable[[str], bytes]
    #: a refusal with this code
    refusal: Callable[[int], bytes]
    #: every string that an id took on its way into the request
    ids_in: Callable[[HttpRequest], list[object]]
    #: the same gateway, told that it takes several targets in one call
    several: GatewayConfig
    #: the answer to such a call: by target a message id, or the code of a refusal
    results: Callable[[Operation, Sequence[tuple[str, str | int]]], bytes]


def _success(msg_id: str) -> bytes:
    data = {"isSendSuccess": 1, "msgServerId": 1175880, "msgUniqueIdentifier": msg_id}
    return json.dumps({"code": 0, "msg": "成功", "data": data}).encode()


def _refusal(code: int) -> bytes:
    return json.dumps({"code": code, "msg": "失败", "data": None}).encode()


def _ids(params: Mapping[str, object]) -> list[object]:
    found = [params["guid"]]
    found += [params[name] for name in ("toId", "roomId") if name in params]
    to_list = params.get("toIdList", [])
    targets = params.get("paramList", [])
    assert isinstance(to_list, list)
    assert isinstance(targets, list)
    found += to_list
    for target in targets:
        found += [target["userId"], *target["labelIdList"]]
    return found


def _results(operation: Operation, told: Sequence[tuple[str, str | int]]) -> bytes:
    field = "userId" if operation is Operation.TAG_CUSTOMERS else "toId"
    results = [
        {field: target, "isSendSuccess": 1, "code": 0, "msg": "成功", "msgUniqueIdentifier": said}
        if isinstance(said, str)
        else {field: target, "isSendSuccess": 0, "code": said, "msg": "失败"}
        for target, said in told
    ]
    return json.dumps({"code": 0, "msg": "成功", "data": {"results": results}}).encode()


def _wecomapi(name: str, dialect: str) -> Case:
    def ids_in(request: HttpRequest) -> list[object]:
        body = json.loads(request.body)
        return _ids(body["params"] if dialect == "method" else body)

    def config(**options: object) -> GatewayConfig:
        return GatewayConfig("wecomapi", "http://gateway.test:9100/", dialect, "secret", options)

    return Case(
        name=name,
        config=config(),
        several=config(multi_target=True),
        results=_results,
        success=_success,
        refusal=_refusal,
        ids_in=ids_in,
    )


CASES = [_wecomapi("wecomapi-path", "path"), _wecomapi("wecomapi-method", "method")]


def call_of(operation: Operation, target: TargetSpec | None = None) -> CallSpec:
    """A call of one target, such as the operation needs."""
    if target is None:
        tags = ("14073751000000001",) if operation is Operation.TAG_CUSTOMERS else ()
        target = TargetSpec(TARGET, "" if tags else "你好", tags)
    return CallSpec("call-1", GUID, operation, (target,))


def call_of_several(operation: Operation, count: int) -> CallSpec:
    """A call of several targets, such as may share one."""
    tags = ("14073751000000001",) if operation is Operation.TAG_CUSTOMERS else ()
    first = int(TARGET)
    targets = (
        TargetSpec(str(first + number), "" if tags else "你好", tags) for number in range(count)
    )
    return CallSpec("call-1", GUID, operation, tuple(targets))
