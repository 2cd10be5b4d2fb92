"""测试发送: one text through one account, now, outside every job."""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from django.conf import settings
from django.db import DatabaseError
from django.utils.translation import gettext as _

from batches.actions.content import CONTENT
from batches.actions.registry import get_action
from batches.actions.send_text import SendText
from batches.domain.categories import IN_DOUBT, Category, category_info
from batches.domain.columns import TARGET
from batches.domain.errors import InvalidInputError, WrongStateError
from batches.domain.hiding import hide_in
from batches.domain.outcomes import Accepted, NotSent, Outcome, Refused, Unknown
from batches.domain.problems import Problem
from batches.domain.text import N_
from batches.domain.verbs import OPERATE
from batches.engine.sync_transport import post
from batches.engine.transport import Answer
from batches.gates.errors import GateUnavailableError
from batches.gates.online import Closed, Gate, Limits, OnlineGate
from batches.gateways.base import CallSpec, GatewayConfig, Operation, RequestBuildError, TargetSpec
from batches.gateways.registry import get_gateway
from batches.intake.cells import clean_id
from batches.models import Account
from batches.store.events import Actor, add_event

from .permissions import require

log = logging.getLogger(__name__)

EVENT = "account.test_sent"
#: characters of the text that the audit keeps
CONTENT_KEPT = 200
#: ms by which a place among a gateway's calls outlasts the longest wait for an answer
_TOKEN_MARGIN_MS = 10_000


@dataclass(frozen=True, slots=True)
class TestResult:
    """What a test send came to.

    `outcome`: `accepted`, `refused`, `not_sent` or `unknown`; `limited` where a gate was closed
    and nothing was tried. `message` is for the operator; `duration_ms` is the request's.
    """

    __test__: ClassVar[bool] = False  # no test of pytest's, whatever its name

    outcome: str
    message: str
    duration_ms: int = 0


def send_test(*, account_id: int, target: str, content: str, actor: Actor) -> TestResult:
    """Send `content` to `target` once, within the account's online reserve; never repeated.

    Raises NotAllowedError, InvalidInputError (unknown account, target, text), WrongStateError (the
    account or its gateway is switched off); nothing was sent then.
    """
    # 1. may they, 2. can it be sent at all, 3. is there room now, 4. send, 5. record
    require(actor=actor, permission=OPERATE)
    account = _account(account_id)
    config = _config(account)
    spec = _target(target, content, gateway_kind=config.kind)
    timeout = account.gateway.timeout_seconds
    try:
        with OnlineGate(settings.REDIS_URL) as gate:
            permit = gate.take(
                _limits(account, config), token_ttl_ms=int(timeout * 1000) + _TOKEN_MARGIN_MS
            )
            if isinstance(permit, Closed):
                return TestResult("limited", _closed(permit))
            started = time.monotonic()
            try:
                outcome = _send(config, account.guid, spec, timeout)
            finally:
                gate.release(permit)
            duration_ms = round((time.monotonic() - started) * 1000)
    except GateUnavailableError as error:
        return TestResult("limited", str(error))
    outcome = hide_in(outcome, config.token)
    result = TestResult(_word(outcome), _sentence(outcome), duration_ms)
    _record(account, spec, actor, outcome, result)
    return result


def _account(account_id: int) -> Account:
    account = Account.objects.select_related("gateway").filter(pk=account_id).first()
    if account is None:
        raise InvalidInputError(
            Problem("unknown_account", N_("没有编号为 %(id)s 的账号。"), {"id": account_id})
        )
    if not account.is_active:
        raise WrongStateError(_("账号已停用，不能测试发送。请先启用该账号。"))
    if not account.gateway.is_active:
        raise WrongStateError(_("账号所属的网关已停用，不能测试发送。请先启用该网关。"))
    return account


def _config(account: Account) -> GatewayConfig:
    gateway = account.gateway
    return GatewayConfig(
        kind=gateway.kind,
        base_url=gateway.base_url,
        dialect=gateway.dialect,
        token=gateway.token,
        options=gateway.options,
    )


def _limits(account: Account, config: GatewayConfig) -> Limits:
    adapter = get_gateway(config.kind)
    return Limits(
        account_id=account.pk,
        online_reserve_per_min=account.online_reserve_per_min,
        gateway_id=account.gateway_id,
        gateway_rate_per_min=account.gateway.rate_limit_per_min,
        gateway_max_concurrent=account.gateway.max_concurrent,
        gateway_largest_call=max(adapter.max_targets(config, kind) for kind in Operation),
    )


def _target(target: str, content: str, *, gateway_kind: str) -> TargetSpec:
    """The target and its text, checked as a row of a job would be. Raises InvalidInputError."""
    action = get_action(SendText.name)
    target = clean_id(target)
    column = next(column for column in action.columns if column.key == TARGET)
    problems = [
        problem
        for problem in (
            column.check(target) or action.check_target(target, gateway_kind=gateway_kind),
        )
        if problem
    ]
    try:
        compiled = action.compile({CONTENT: content}, (), {})
    except InvalidInputError as error:
        raise InvalidInputError(*problems, *map(_without_columns, error.problems)) from None
    problems += compiled.check_row(target, ())
    if problems:
        raise InvalidInputError(*problems)
    return compiled.to_target(target, ())


def _without_columns(problem: Problem | str) -> Problem | str:
    """There is no file here, so a placeholder has nothing to stand for."""
    if isinstance(problem, Problem) and problem.code == "template_placeholder_unknown":
        return Problem(
            "template_placeholder_in_test",
            N_("测试发送没有名单，占位符 {%(name)s} 没有可填的值。请写上要实际发出的文字。"),
            {"name": problem.params["name"]},
        )
    return problem


def _closed(closed: Closed) -> str:
    seconds = math.ceil(closed.seconds)
    match closed.gate:
        case Gate.RESERVE:
            return _(
                "该账号没有在线保留速率，测试发送不会占用批量速率。"
                "请先在账号上设置「在线保留（条/分）」。"
            )
        case Gate.ONLINE:
            return _("该账号的在线保留速率已用满，请 %(seconds)s 秒后再试。") % {"seconds": seconds}
        case Gate.GATEWAY:
            return _("网关的总速率或总并发已用满，请 %(seconds)s 秒后再试。") % {"seconds": seconds}


def _send(config: GatewayConfig, guid: str, spec: TargetSpec, timeout: float) -> Outcome:
    """One request, once. Whatever is not definite is Unknown."""
    adapter = get_gateway(config.kind)
    call = CallSpec(
        request_id=f"test-{uuid.uuid4()}",
        guid=guid,
        operation=SendText.operation,
        targets=(spec,),
    )
    try:
        request = adapter.build(config, call)
    except RequestBuildError as error:
        return NotSent(Category.RENDER, str(error))
    answer = post(request, timeout=timeout)
    if not isinstance(answer, Answer):
        return answer
    return adapter.parse(config, call, answer.status, answer.headers, answer.body)[0]


_WORDS: Mapping[type[Outcome], str] = {
    Accepted: "accepted",
    Refused: "refused",
    NotSent: "not_sent",
    Unknown: "unknown",
}


def _word(outcome: Outcome) -> str:
    return _WORDS[type(outcome)]


def _sentence(outcome: Outcome) -> str:
    """What came of it, and what to do, in the operator's words."""
    if isinstance(outcome, Accepted):
        if outcome.msg_id:
            return _("网关已接受，消息编号 %(msg_id)s。") % {"msg_id": outcome.msg_id}
        return _("网关已接受。")
    info = category_info(outcome.category)
    values = {
        "label": _(info.label),
        "advice": _(info.advice),
        "detail": " ".join(filter(None, (getattr(outcome, "code", ""), outcome.message))) or "–",
    }
    match outcome:
        case Refused():
            return _("网关拒绝：%(label)s（%(detail)s）。%(advice)s。") % values
        case NotSent():
            return _("没有发出：%(label)s（%(detail)s）。%(advice)s。") % values
        case Unknown():
            assert outcome.category in IN_DOUBT
            return _("不确定是否送达，请勿直接重发：%(label)s（%(detail)s）。%(advice)s。") % values


def _record(
    account: Account,
    spec: TargetSpec,
    actor: Actor,
    outcome: Outcome,
    result: TestResult,
) -> None:
    """The audit's line. The message is out: a failure here must not look like one to send again."""
    data: dict[str, object] = {
        "target": spec.target,
        "content": spec.content[:CONTENT_KEPT],
        "outcome": result.outcome,
        "duration_ms": result.duration_ms,
    }
    match outcome:
        case Accepted(msg_id=msg_id):
            data["msg_id"] = msg_id
        case Refused(category=category, code=code, message=message):
            data |= {"category": category.value, "code": code, "message": message}
        case (
            NotSent(category=category, message=message)
            | Unknown(category=category, message=message)
        ):
            data |= {"category": category.value, "message": message}
    try:
        add_event(kind=EVENT, account_id=account.pk, actor=actor, data=data)
    except DatabaseError:
        log.exception("test send by account %s not recorded: %s", account.pk, data)
