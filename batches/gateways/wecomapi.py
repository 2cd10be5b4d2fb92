"""The `wecomapi` adapter: iPad-protocol HTTP gateways, path and method dialect."""

from __future__ import annotations

import json
from collections.abc import Mapping

from batches.domain.outcomes import Outcome
from batches.domain.problems import Problem

from .base import CallSpec, GatewayConfig, HttpRequest, Operation, RequestBuildError, TargetSpec
from .wecomapi_answer import read_answer
from .wecomapi_options import (
    DIALECTS,
    is_header_value,
    option,
    text_option,
    validate_config,
    validate_options,
)


class WecomApiGateway:
    """Builds and reads the requests of both dialects; see `wecomapi_options` for what can vary.

    `Accepted.msg_id` is `msgUniqueIdentifier` where the answer has one, else `msgServerId`.
    The account's echo (callback 15000) carries both fields, so either can be matched there.
    """

    kind = "wecomapi"

    def max_targets(self, config: GatewayConfig, operation: Operation) -> int:
        # The one multi-target call seen (`sendGroupMsg`) differs between gateways and answers for
        # the call, not for its targets; a partial failure would be indistinguishable.
        return 1

    def validate(self, config: GatewayConfig) -> list[Problem]:
        return validate_config(config)

    def validate_options(self, options: Mapping[str, object]) -> list[Problem]:
        return validate_options(options)

    # --- request --------------------------------------------------------------------------------

    def build(self, config: GatewayConfig, call: CallSpec) -> HttpRequest:
        if len(call.targets) != 1:
            raise RequestBuildError(f"{len(call.targets)} targets in a call that carries one")
        if config.dialect not in DIALECTS:
            raise RequestBuildError(f"unknown dialect {config.dialect!r}")
        options = config.options
        params = self._params(options, call, call.targets[0])
        if name := text_option(options, "field_request_id"):
            params[name] = call.request_id
        if config.dialect == "path":
            path = text_option(options, f"path_{call.operation}")
            payload = params
        else:
            path = text_option(options, "method_path")
            payload = {
                text_option(options, "field_method"): text_option(
                    options, f"method_{call.operation}"
                ),
                text_option(options, "field_params"): params,
            }
        try:
            # An official error (40033) forbids \uXXXX, so the text goes out as UTF-8.
            body = json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()
        except UnicodeEncodeError as error:
            raise RequestBuildError("the content holds half a surrogate pair") from error
        return HttpRequest(
            method="POST",
            url=config.base_url.rstrip("/") + path,
            headers=self._headers(config, call),
            body=body,
        )

    def _params(
        self, options: Mapping[str, object], call: CallSpec, target: TargetSpec
    ) -> dict[str, object]:
        guid = {text_option(options, "field_guid"): call.guid}
        content = {text_option(options, "field_content"): target.content}
        match call.operation:
            case Operation.SEND_TEXT:
                return {**guid, text_option(options, "field_to"): target.target, **content}
            case Operation.SET_GROUP_WELCOME:
                return {**guid, text_option(options, "field_room"): target.target, **content}
            case Operation.TAG_CUSTOMERS:
                if bool(target.tags) == bool(target.remove_tags):
                    raise RequestBuildError("a tag call either adds or removes, and not nothing")
                return {
                    **guid,
                    text_option(options, "field_op_type"): option(
                        options, "op_add" if target.tags else "op_remove"
                    ),
                    text_option(options, "field_targets"): [
                        {
                            text_option(options, "field_user"): target.target,
                            text_option(options, "field_labels"): list(
                                target.tags or target.remove_tags
                            ),
                        }
                    ],
                }

    def _headers(self, config: GatewayConfig, call: CallSpec) -> dict[str, str]:
        headers = {"Content-Type": "application/json; charset=utf-8", "Accept": "application/json"}
        extra = option(config.options, "headers")
        if isinstance(extra, Mapping):
            headers.update(extra)
        if config.token:
            if not is_header_value(config.token):
                raise RequestBuildError("the token cannot stand in a header")
            headers[text_option(config.options, "token_header")] = config.token
        if name := text_option(config.options, "request_id_header"):
            headers[name] = call.request_id
        return headers

    # --- answer ---------------------------------------------------------------------------------

    def parse(
        self,
        config: GatewayConfig,
        call: CallSpec,
        status: int,
        headers: Mapping[str, str],
        body: bytes,
    ) -> list[Outcome]:
        return [read_answer(config.options, status, headers, body)] * len(call.targets)
