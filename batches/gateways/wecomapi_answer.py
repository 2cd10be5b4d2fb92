"""What a `wecomapi` answer proves: accepted, refused, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from batches.domain.categories import Category
from batches.domain.outcomes import Accepted, Outcome, Refused, Unknown

from . import classify, reply
from .wecomapi_options import option, text_option

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


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A code outside the success set, and what the table says about it."""

    code: int
    message: str
    documented: Category | None


@dataclass(frozen=True, slots=True)
class _Answer:
    """An HTTP answer, and the outcomes made of it."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def refused(self, category: Category, verdict: _Refusal | None) -> Refused:
        return Refused(
            category,
            code=str(verdict.code) if verdict else f"HTTP {self.status}",
            message=verdict.message if verdict else reply.excerpt(self.body),
            retry_after=reply.retry_after(self.headers),
        )

    def unknown(self, category: Category) -> Unknown:
        return Unknown(category, f"HTTP {self.status} {reply.excerpt(self.body)}".strip())


def read_answer(
    options: Mapping[str, object], status: int, headers: Mapping[str, str], body: bytes
) -> Outcome:
    """The outcome that an HTTP answer proves; it is the same for every target of the call."""
    return _outcome(_Answer(status, headers, body), _verdict(options, reply.read_object(body)))


def _verdict(
    options: Mapping[str, object], answer: Mapping[str, object] | None
) -> Accepted | _Refusal | None:
    """What a JSON answer claims; None where it fits neither success nor refusal."""
    if answer is None:
        return None
    data = answer.get(text_option(options, "reply_data"))
    fields = data if isinstance(data, dict) else {}
    sent_field = text_option(options, "reply_sent")
    claims_sent = sent_field in fields and _same(fields[sent_field], option(options, "sent_value"))
    msg_id = reply.read_id(fields.get(text_option(options, "reply_unique_id"))) or reply.read_id(
        fields.get(text_option(options, "reply_server_id"))
    )
    code = answer.get(text_option(options, "reply_code"))
    success_codes = option(options, "success_codes")
    assert isinstance(success_codes, list | tuple)  # `fits` has checked it
    if any(_same(code, success) for success in success_codes):
        readable = data is None or isinstance(data, dict)
        return Accepted(msg_id) if readable and (claims_sent or sent_field not in fields) else None
    number = _code_number(code, success_codes)
    # A refusal that carries a message id, or anything else of substance, contradicts itself.
    if number is None or claims_sent or msg_id or (data and not isinstance(data, dict)):
        return None
    overrides = option(options, "codes")
    known = classify.documented(number, overrides if isinstance(overrides, Mapping) else None)
    if known is None and (number == 0 or 200 <= number < 300):
        # Codes that mean success elsewhere: a wrong success set must not make sent items "failed".
        return None
    return _Refusal(number, _message(answer), known)


def _same(value: object, wanted: object) -> bool:
    """Equal and of one type: `true`, `1.0` and `"1"` are not 1."""
    return type(value) is type(wanted) and value == wanted


def _code_number(code: object, success_codes: list[object] | tuple[object, ...]) -> int | None:
    """A refusal's code; text counts only from a gateway whose success codes are text too."""
    if isinstance(code, str) and any(isinstance(known, str) for known in success_codes):
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


def _outcome(answer: _Answer, verdict: Accepted | _Refusal | None) -> Outcome:
    """What status and body say together; whatever is not definite is unknown."""
    status = answer.status
    if 200 <= status < 300:
        return _outcome_of_2xx(answer, verdict)
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


def _outcome_of_2xx(answer: _Answer, verdict: Accepted | _Refusal | None) -> Outcome:
    if isinstance(verdict, Accepted):
        return verdict
    if verdict is None:
        return answer.unknown(Category.UNREADABLE)
    if verdict.documented is None and 500 <= verdict.code < 600:
        # These gateways mirror HTTP statuses in `code`; such a one proves as little as a 5xx.
        return answer.unknown(Category.SERVER_ERROR)
    return answer.refused(verdict.documented or Category.OTHER, verdict)


def _category_of_4xx(status: int, verdict: _Refusal | None) -> Category:
    if verdict and verdict.documented:
        return verdict.documented
    by_status = _STATUS_CATEGORY[status]
    return Category.OTHER if verdict and by_status is Category.PARAM else by_status
