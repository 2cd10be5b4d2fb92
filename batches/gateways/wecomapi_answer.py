"""What a `wecomapi` answer proves: accepted, refused, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from batches.domain.categories import Category
from batches.domain.outcomes import Accepted, Outcome, Refused, Unknown

from . import classify, reply
from .wecomapi_wire import Wire

#: Refusals by the HTTP server itself. These answers are given instead of running the request:
#: it was malformed, not allowed, or had no handler, so nothing was executed. 408, 409 and the
#: other 4xx are not among them, since a proxy can give those after it passed the request on.
_STATUS_CATEGORY: Mapping[int, Category] = {
    400: Category.PARAM,
    401: Category.CREDENTIAL,
    402: Category.QUOTA_LIMIT,
    403: Category.PERMISSION,
    404: Category.PARAM,
    405: Category.PARAM,
    406: Category.PARAM,
    407: Category.PERMISSION,
    410: Category.PARAM,
    411: Category.PARAM,
    413: Category.CONTENT_INVALID,
    414: Category.PARAM,
    415: Category.PARAM,
    417: Category.PARAM,
    421: Category.PARAM,
    422: Category.PARAM,
    426: Category.PARAM,
    431: Category.PARAM,
    451: Category.PERMISSION,
}


_NOTHING: Mapping[str, object] = {}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A code outside the success set, and what the table says about it."""

    code: int
    message: str
    documented: Category | None


#: What JSON claims; None where it fits neither success nor refusal.
Verdict = Accepted | Refusal | None


class Answer(NamedTuple):
    """An HTTP answer, and the outcomes made of it."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def refused(self, category: Category, verdict: Refusal | None) -> Refused:
        return Refused(
            category,
            code=str(verdict.code) if verdict else f"HTTP {self.status}",
            message=verdict.message if verdict else reply.excerpt(self.body),
            retry_after=reply.retry_after(self.headers),
        )

    def unknown(self, category: Category, why: str = "") -> Unknown:
        text = why or reply.excerpt(self.body)
        return Unknown(category, f"HTTP {self.status} {text}".strip())


def read_answer(wire: Wire, status: int, headers: Mapping[str, str], body: bytes) -> Outcome:
    """The outcome that the answer to a call of one target proves."""
    verdict = verdict_of(wire, reply.read_object(body))
    if isinstance(verdict, Accepted) and 200 <= status < 300:  # nearly every answer
        return verdict
    return outcome_of(Answer(status, headers, body), verdict)


def verdict_of(wire: Wire, answer: Mapping[str, object] | None) -> Verdict:
    """What a JSON answer claims about the call as a whole."""
    if answer is None:
        return None
    settings = wire.settings
    data = answer.get(settings.reply_data)
    code = answer.get(settings.reply_code)
    if isinstance(data, dict):
        return judge(wire, code, data, answer)
    verdict = judge(wire, code, _NOTHING, answer)
    # Data of another type makes a success unreadable, and contradicts a refusal unless empty.
    spoilt = data is not None if isinstance(verdict, Accepted) else bool(data)
    return None if spoilt else verdict


def judge(
    wire: Wire, code: object, fields: Mapping[str, object], said_in: Mapping[str, object]
) -> Verdict:
    """What a code claims together with the fields beside it."""
    settings = wire.settings
    has_flag = settings.reply_sent in fields
    claims_sent = has_flag and _same(fields[settings.reply_sent], settings.sent_value)
    msg_id = reply.read_id(fields.get(settings.reply_unique_id)) or reply.read_id(
        fields.get(settings.reply_server_id)
    )
    if isinstance(code, int | str) and (type(code), code) in wire.success:
        return Accepted(msg_id) if claims_sent or not has_flag else None
    number = _code_number(code, text_counts=wire.text_codes)
    if number is None or claims_sent or msg_id:  # a refusal that claims an effect is none
        return None
    known = classify.documented(number, settings.codes)
    if known is None and (number == 0 or 200 <= number < 300):
        # Codes that mean success elsewhere: a wrong success set must not make sent items "failed".
        return None
    return Refusal(number, _message(said_in), known)


def _same(value: object, wanted: object) -> bool:
    """Equal and of one type: `true`, `1.0` and `"1"` are not 1."""
    return type(value) is type(wanted) and value == wanted


def _code_number(code: object, *, text_counts: bool) -> int | None:
    """A refusal's code; text counts only from a gateway whose success codes are text too."""
    if isinstance(code, str) and text_counts:
        digits = code.removeprefix("-")
        code = int(code) if digits.isascii() and digits.isdigit() and len(code) <= 18 else None
    if isinstance(code, int) and not isinstance(code, bool) and abs(code) < 10**18:
        return code
    return None


def _message(answer: Mapping[str, object]) -> str:
    for name in ("msg", "message", "errmsg"):
        if text := reply.clean_text(answer.get(name)):
            return text
    return ""


def outcome_of(answer: Answer, verdict: Verdict) -> Outcome:
    """What status and body say together; whatever is not definite is unknown."""
    status = answer.status
    if 200 <= status < 300:
        return outcome_of_2xx(answer, verdict)
    if isinstance(verdict, Accepted):  # the status says no, the body says yes
        return answer.unknown(Category.UNREADABLE)
    if status == 429:
        return answer.refused(Category.RATE_LIMITED, verdict)
    if status in _STATUS_CATEGORY:
        return answer.refused(_category_of_4xx(status, verdict), verdict)
    if not 500 <= status < 600:
        return answer.unknown(Category.UNREADABLE)
    if verdict and verdict.documented:
        return answer.refused(verdict.documented, verdict)
    return answer.unknown(Category.SERVER_ERROR)


def outcome_of_2xx(answer: Answer, verdict: Verdict) -> Outcome:
    if isinstance(verdict, Accepted):
        return verdict
    if verdict is None:
        return answer.unknown(Category.UNREADABLE)
    if verdict.documented is None and 500 <= verdict.code < 600:
        # These gateways mirror HTTP statuses in `code`; such a one proves as little as a 5xx.
        return answer.unknown(Category.SERVER_ERROR)
    return answer.refused(verdict.documented or Category.OTHER, verdict)


def _category_of_4xx(status: int, verdict: Refusal | None) -> Category:
    if verdict and verdict.documented:
        return verdict.documented
    by_status = _STATUS_CATEGORY[status]
    return Category.OTHER if verdict and by_status is Category.PARAM else by_status
