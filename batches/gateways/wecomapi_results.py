"""What a `wecomapi` answer proves about each target of a call of several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from batches.domain.categories import Category
from batches.domain.outcomes import Accepted, Outcome, Refused, Unknown

from . import reply
from .base import CallSpec, Operation
from .wecomapi_answer import Answer, Verdict, judge, outcome_of, outcome_of_2xx, verdict_of
from .wecomapi_wire import Settings, Wire

_NOT_MENTIONED = "the answer says nothing about this target"
_TWICE = "the answer names this target more than once"
_CONTRADICTION = "the answer refuses the call and reports an effect"
_NO_LIST = "the answer has no result for each target"


@dataclass(slots=True)
class _Results:
    """What a list of results says, by target."""

    by_target: dict[str, Outcome] = field(default_factory=dict)
    #: every entry is a definite refusal
    only_refusals: bool = True


def read_results(
    wire: Wire, call: CallSpec, status: int, headers: Mapping[str, str], body: bytes
) -> list[Outcome]:
    """One outcome per target, in the call's order. Never raises.

    1. An answer that proves nothing as a whole proves nothing about any target.
    2. In a success, each target's own entry decides; a target without one is in doubt.
    3. A refusal holds for all, unless an entry contradicts it: then it holds for those targets
       only whose own entry is a refusal too.
    """
    settings = wire.settings
    answer = Answer(status, headers, body)
    read = reply.read_object(body)
    listed = _listed(settings, read)
    whole = outcome_of(answer, _whole_verdict(wire, read, listed))
    targets = [target.target for target in call.targets]
    if isinstance(whole, Unknown):
        return [whole] * len(targets)
    if listed is None:
        if isinstance(whole, Accepted) and len(targets) > 1:
            # An id of the whole call belongs to none of its targets.
            proven = settings.multi_target_all_or_nothing
            whole = Accepted() if proven else answer.unknown(Category.UNREADABLE, _NO_LIST)
        return [whole] * len(targets)
    results = _results(wire, call, answer, listed)
    outcomes = [_decide(answer, whole, results, target) for target in targets]
    return _without_shared_ids(outcomes)


def _listed(settings: Settings, read: Mapping[str, object] | None) -> object:
    """The results as they stand in the answer, of whatever type; None where there are none."""
    data = read.get(settings.reply_data) if read else None
    if not settings.reply_results:
        return None if isinstance(data, dict) else data
    return data.get(settings.reply_results) if isinstance(data, dict) else None


def _whole_verdict(wire: Wire, read: Mapping[str, object] | None, listed: object) -> Verdict:
    if read is not None and listed is not None and not wire.settings.reply_results:
        read = {**read, wire.settings.reply_data: None}  # the data is the list, read by itself
    return verdict_of(wire, read)


def _results(wire: Wire, call: CallSpec, answer: Answer, listed: object) -> _Results:
    """Read the list; what is no list, or no entry of a target of ours, proves nothing."""
    results = _Results()
    if not isinstance(listed, list):
        results.only_refusals = not listed
        return results
    is_tagging = call.operation is Operation.TAG_CUSTOMERS
    id_field = wire.settings.reply_user if is_tagging else wire.settings.reply_to
    asked_for = Counter(target.target for target in call.targets)
    twice = answer.unknown(Category.UNREADABLE, _TWICE)
    for entry in listed:
        name = entry.get(id_field) if isinstance(entry, dict) else None
        target = name if isinstance(name, str) else reply.read_id(name)
        if target not in asked_for:
            results.only_refusals = False
            continue
        if target in results.by_target or asked_for[target] > 1:
            outcome: Outcome = twice
        else:
            outcome = outcome_of_2xx(answer, _entry_verdict(wire, entry))
            if isinstance(outcome, Unknown):
                outcome = answer.unknown(outcome.category, _told(entry))
        results.by_target[target] = outcome
        results.only_refusals &= isinstance(outcome, Refused)
    return results


def _told(entry: Mapping[str, object]) -> str:
    """An entry that proves nothing, for a person to look at."""
    plain = (f"{key}={value}" for key, value in entry.items() if isinstance(value, str | int))
    return reply.clean_text(" ".join(plain), 200)


def _entry_verdict(wire: Wire, entry: Mapping[str, object]) -> Verdict:
    code = wire.settings.reply_code
    if code in entry:
        return judge(wire, entry[code], entry, entry)
    # Without a code only the flag can say yes, and nothing can say a definite no.
    flag = wire.settings.reply_sent
    return judge(wire, wire.settings.success_codes[0], entry, entry) if flag in entry else None


def _decide(answer: Answer, whole: Outcome, results: _Results, target: str) -> Outcome:
    """What the whole and the target's own entry say together."""
    own = results.by_target.get(target)
    if isinstance(whole, Accepted):
        return own or answer.unknown(Category.UNREADABLE, _NOT_MENTIONED)
    if isinstance(own, Refused | Unknown):
        return own
    if own is None and results.only_refusals:
        return whole
    return answer.unknown(Category.UNREADABLE, _CONTRADICTION)


def _without_shared_ids(outcomes: list[Outcome]) -> list[Outcome]:
    """An id that several targets got identifies none of them."""
    ids = Counter(one.msg_id for one in outcomes if isinstance(one, Accepted))
    return [
        Accepted() if isinstance(one, Accepted) and ids[one.msg_id] > 1 else one for one in outcomes
    ]
