"""The `wecomapi` adapter: iPad-protocol HTTP gateways, path and method dialect."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from batches.domain.outcomes import Outcome
from batches.domain.problems import Problem

from .base import CallSpec, GatewayConfig, HttpRequest, Operation, RequestBuildError, TargetSpec
from .ids import GROUP_ID
from .wecomapi_answer import read_answer
from .wecomapi_options import validate_config, validate_options
from .wecomapi_results import read_results
from .wecomapi_wire import SEND_GROUP, Settings, Wire, wire_of

#: An official error (40033) forbids \uXXXX, so text goes out as UTF-8. Made once, not per call.
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class WecomApiGateway:
    """Builds and reads the requests of both dialects; see `wecomapi_options` for what can vary.

    `Accepted.msg_id` is `msgUniqueIdentifier` where the answer has one, else `msgServerId`.
    The account's echo (callback 15000) carries both fields, so either can be matched there.
    """

    kind = "wecomapi"

    def max_targets(self, config: GatewayConfig, operation: Operation) -> int:
        return _max_targets(wire_of(config).settings, operation)

    def fitting(
        self, config: GatewayConfig, operation: Operation, targets: Sequence[TargetSpec]
    ) -> int:
        return _fitting(wire_of(config).settings, operation, targets)[0]

    def validate(self, config: GatewayConfig) -> list[Problem]:
        return validate_config(config)

    def validate_options(self, options: Mapping[str, object]) -> list[Problem]:
        return validate_options(options)

    def build(self, config: GatewayConfig, call: CallSpec) -> HttpRequest:
        wire = wire_of(config)
        if wire.fault:
            raise RequestBuildError(wire.fault)
        settings, endpoint = wire.settings, call.operation.value
        match call.targets:
            case (target,):
                params = _params(settings, call, target)
            case _:
                params = _params_of_several(settings, call)
                if call.operation is Operation.SEND_TEXT:
                    endpoint = SEND_GROUP
        if settings.field_request_id:
            params[settings.field_request_id] = call.request_id
        return _request(wire, endpoint, call.request_id, params)

    def parse(
        self,
        config: GatewayConfig,
        call: CallSpec,
        status: int,
        headers: Mapping[str, str],
        body: bytes,
    ) -> list[Outcome]:
        wire = wire_of(config)
        # Tags go out as a list even for one customer, and may come back as one.
        if len(call.targets) == 1 and call.operation is not Operation.TAG_CUSTOMERS:
            return [read_answer(wire, status, headers, body)]
        return read_results(wire, call, status, headers, body)


def _request(wire: Wire, endpoint: str, request_id: str, params: dict[str, object]) -> HttpRequest:
    settings = wire.settings
    url, method = wire.endpoints[endpoint]
    payload = params
    if wire.by_method:
        payload = {settings.field_method: method, settings.field_params: params}
    headers = dict(wire.headers)
    if settings.request_id_header:
        headers[settings.request_id_header] = request_id
    try:
        body = _to_json(payload).encode()
    except UnicodeEncodeError as error:
        raise RequestBuildError("the content holds half a surrogate pair") from error
    return HttpRequest("POST", url, headers, body)


def _params(settings: Settings, call: CallSpec, target: TargetSpec) -> dict[str, object]:
    """What the request for one target says."""
    if call.operation is Operation.SEND_TEXT:
        return {
            settings.field_guid: call.guid,
            settings.field_to: target.target,
            settings.field_content: target.content,
        }
    if call.operation is Operation.SET_GROUP_WELCOME:
        return {
            settings.field_guid: call.guid,
            settings.field_room: target.target,
            settings.field_content: target.content,
        }
    return _tag_params(settings, call)


def _params_of_several(settings: Settings, call: CallSpec) -> dict[str, object]:
    """What the request for several targets says. Raises RequestBuildError where none can be."""
    targets = call.targets
    count, reason = _fitting(settings, call.operation, targets)
    if not targets or count < len(targets):
        raise RequestBuildError(reason or "a call without a target")
    if call.operation is Operation.TAG_CUSTOMERS:
        return _tag_params(settings, call)
    to_groups = _is_group(targets[0])
    return {
        settings.field_guid: call.guid,
        settings.field_to_list: [target.target for target in targets],
        settings.field_messages: [
            {
                settings.field_message_type: settings.message_type_text,
                settings.field_message_data: {settings.field_content: targets[0].content},
            }
        ],
        settings.field_send_type: (
            settings.send_type_groups if to_groups else settings.send_type_contacts
        ),
    }


def _tag_params(settings: Settings, call: CallSpec) -> dict[str, object]:
    for target in call.targets:
        if bool(target.tags) == bool(target.remove_tags):
            raise RequestBuildError("a tag call either adds or removes, and not nothing")
    adds = bool(call.targets[0].tags)
    return {
        settings.field_guid: call.guid,
        settings.field_op_type: settings.op_add if adds else settings.op_remove,
        settings.field_targets: [
            {
                settings.field_user: target.target,
                settings.field_labels: list(target.tags or target.remove_tags),
            }
            for target in call.targets
        ],
    }


def _max_targets(settings: Settings, operation: Operation) -> int:
    # No request that sets the welcome of several groups was seen.
    if settings.multi_target and operation is not Operation.SET_GROUP_WELCOME:
        return settings.multi_target_max
    return 1


def _fitting(
    settings: Settings, operation: Operation, targets: Sequence[TargetSpec]
) -> tuple[int, str]:
    """How many targets one request can carry, and why it cannot carry the next."""
    most = _max_targets(settings, operation)
    seen: set[str] = set()
    labels: set[str] = set()
    for count, target in enumerate(targets):
        first = targets[0]
        labels.update(target.tags, target.remove_tags)
        if count == 0:
            reason = ""  # whatever is wrong with a single target is for `build` to say
        elif count == most:
            reason = f"more than {most} targets for one call"
        elif target.target in seen:
            reason = f"the target {target.target} comes twice"
        elif target.content != first.content:
            reason = "one call cannot bring different contents"
        elif _tag_mode(target) != _tag_mode(first):
            reason = "one call cannot both add and remove tags"
        elif len(labels) > settings.multi_target_labels:
            reason = f"more than {settings.multi_target_labels} different tags for one call"
        elif operation is Operation.SEND_TEXT and _is_group(target) != _is_group(first):
            reason = "one call cannot go to both customers and groups"
        else:
            reason = ""
        if reason:
            return count, reason
        seen.add(target.target)
    return len(targets), ""


def _tag_mode(target: TargetSpec) -> tuple[bool, bool]:
    return bool(target.tags), bool(target.remove_tags)


def _is_group(target: TargetSpec) -> bool:
    return GROUP_ID.fullmatch(target.target) is not None
