"""What every gateway adapter must keep in calls of several targets."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batches.domain.categories import Category
from batches.domain.outcomes import Accepted, Outcome, Refused, Unknown
from batches.gateways.base import CallSpec, Operation, RequestBuildError, TargetSpec
from batches.gateways.registry import get_gateway

from .cases import CASES, GUID, Case, call_of, call_of_several

OPERATIONS = (Operation.SEND_TEXT, Operation.TAG_CUSTOMERS)
pytestmark = [
    pytest.mark.parametrize("case", CASES, ids=lambda case: case.name),
    pytest.mark.parametrize("operation", OPERATIONS),
]


def parse(case: Case, call: CallSpec, body: bytes, status: int = 200) -> list[Outcome]:
    outcomes = get_gateway(case.several.kind).parse(case.several, call, status, {}, body)
    assert len(outcomes) == len(call.targets)
    return outcomes


def ids_of(call: CallSpec) -> list[str]:
    return [target.target for target in call.targets]


def sent(call: CallSpec) -> list[tuple[str, str | int]]:
    return [(target, f"m-{target}") for target in ids_of(call)]


def test_max_targets_is_one_unless_the_gateway_is_told_to_take_several(case, operation):
    gateway = get_gateway(case.config.kind)
    assert gateway.max_targets(case.config, operation) == 1
    assert gateway.max_targets(case.several, operation) == 50
    assert gateway.max_targets(case.several, Operation.SET_GROUP_WELCOME) == 1
    assert gateway.validate(case.several) == []


@pytest.mark.parametrize("count", [2, 50])
def test_build_several_names_each_target_once_as_a_string(case, operation, count):
    call = call_of_several(operation, count)
    request = get_gateway(case.several.kind).build(case.several, call)
    ids = case.ids_in(request)
    assert all(isinstance(value, str) for value in ids)
    assert [value for value in ids if value in ids_of(call)] == ids_of(call)


def test_build_one_target_is_the_same_request_as_ever(case, operation):
    gateway = get_gateway(case.config.kind)
    call = call_of(operation)
    assert gateway.build(case.several, call) == gateway.build(case.config, call)


def test_build_several_is_refused_where_the_gateway_was_not_told(case, operation):
    gateway, call = get_gateway(case.config.kind), call_of_several(operation, 2)
    assert gateway.fitting(case.config, operation, call.targets) == 1
    with pytest.raises(RequestBuildError):
        gateway.build(case.config, call)


@given(order=st.permutations(range(7)))
def test_parse_results_are_matched_by_target_in_any_order(case, operation, order):
    call = call_of_several(operation, 7)
    told = sent(call)
    told[2] = (told[2][0], 84061)
    outcomes = parse(case, call, case.results(operation, [told[number] for number in order]))
    assert outcomes[2] == Refused(Category.TARGET_INVALID, "84061", "失败")
    assert [outcome for number, outcome in enumerate(outcomes) if number != 2] == [
        Accepted(said) for number, (_, said) in enumerate(told) if number != 2
    ]


def test_parse_target_without_a_result_is_in_doubt(case, operation):
    call = call_of_several(operation, 3)
    first, second, third = parse(case, call, case.results(operation, sent(call)[:2]))
    assert isinstance(first, Accepted)
    assert isinstance(second, Accepted)
    assert isinstance(third, Unknown)
    assert third.category is Category.UNREADABLE


def test_parse_result_of_a_stranger_changes_nothing(case, operation):
    call = call_of_several(operation, 2)
    told = [("stranger", "m-x"), *sent(call), ("other", 40003)]
    assert all(
        isinstance(one, Accepted) for one in parse(case, call, case.results(operation, told))
    )


@pytest.mark.parametrize("again", ["m-again", 84061])
def test_parse_target_named_twice_is_in_doubt(case, operation, again):
    call = call_of_several(operation, 3)
    told = [*sent(call), (call.targets[0].target, again)]
    first, *others = parse(case, call, case.results(operation, told))
    assert isinstance(first, Unknown)
    assert all(isinstance(one, Accepted) for one in others)


def test_parse_target_asked_for_twice_is_in_doubt(case, operation):
    one = call_of(operation).targets[0]
    call = CallSpec("c", GUID, operation, (one, one))
    for outcome in parse(case, call, case.results(operation, sent(call)[:1])):
        assert isinstance(outcome, Unknown)


def test_parse_id_given_to_several_targets_is_nobodys(case, operation):
    call = call_of_several(operation, 3)
    told = [(target, "shared") for target in ids_of(call)]
    told[0] = (told[0][0], "own")
    outcomes = parse(case, call, case.results(operation, told))
    assert outcomes == [Accepted("own"), Accepted(), Accepted()]


def test_parse_refusal_of_the_whole_holds_for_each(case, operation):
    call = call_of_several(operation, 4)
    assert (
        parse(case, call, case.refusal(45009))
        == [Refused(Category.RATE_LIMITED, "45009", "失败")] * 4
    )
    for outcome in parse(case, call, b"slow down", 429):
        assert isinstance(outcome, Refused)
        assert outcome.category is Category.RATE_LIMITED


def test_parse_success_without_results_is_in_doubt_for_each(case, operation):
    call = call_of_several(operation, 3)
    for body in (case.success("m-1"), case.results(operation, [])):
        for outcome in parse(case, call, body):
            assert isinstance(outcome, Unknown)
            assert outcome.category is Category.UNREADABLE


@pytest.mark.parametrize("status", [301, 500, 502, 0])
def test_parse_results_under_another_status_are_in_doubt(case, operation, status):
    call = call_of_several(operation, 2)
    told = [sent(call)[0], (call.targets[1].target, 84061)]
    for outcome in parse(case, call, case.results(operation, told), status):
        assert isinstance(outcome, Unknown)


def test_parse_truncated_results_are_in_doubt_at_every_cut(case, operation):
    call = call_of_several(operation, 2)
    whole = case.results(operation, sent(call))
    for cut in range(len(whole)):
        for outcome in parse(case, call, whole[:cut]):
            assert isinstance(outcome, Unknown)


def test_parse_huge_list_ends_and_decides(case, operation):
    call = call_of_several(operation, 2)
    told = [*sent(call), *((f"9{number}", 40003) for number in range(5000))]
    assert all(
        isinstance(one, Accepted) for one in parse(case, call, case.results(operation, told))
    )
    (name, _), *_ = sent(call)
    first, second = parse(case, call, case.results(operation, [(name, 40003)] * 5000))
    assert isinstance(first, Unknown)
    assert isinstance(second, Unknown)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(st.integers(-1, 700), st.binary(max_size=300), st.integers(1, 50))
def test_parse_arbitrary_bytes_never_raises_and_is_never_accepted(
    case, operation, status, body, count
):
    for outcome in parse(case, call_of_several(operation, count), body, status):
        assert isinstance(outcome, Refused | Unknown)


@given(st.sampled_from([0, 200, 45009]), JSON | st.lists(JSON, max_size=3))
def test_parse_arbitrary_results_never_raise_and_are_never_accepted(case, operation, code, results):
    body = json.dumps({"code": code, "data": {"results": results}})
    for outcome in parse(
        case, call_of_several(operation, 3), body.encode("utf-8", "surrogatepass")
    ):
        assert isinstance(outcome, Refused | Unknown)
        outcome.message.encode()
        assert len(outcome.message) <= 500


SPECS = st.builds(
    TargetSpec,
    target=st.sampled_from([str(7881300000000000 + n) for n in range(4)] + ["10888000000000001"]),
    content=st.sampled_from(["", "你好", "您好"]),
    tags=st.sampled_from([(), ("1",), tuple(map(str, range(20))), ("30", "31")]),
    remove_tags=st.sampled_from([(), (), ("1",)]),
)


@given(targets=st.lists(SPECS, min_size=1, max_size=6))
def test_fitting_is_how_many_build_takes(case, operation, targets):
    gateway = get_gateway(case.several.kind)
    if operation is Operation.SEND_TEXT:
        targets = [TargetSpec(spec.target, spec.content) for spec in targets]
    elif bool(targets[0].tags) == bool(targets[0].remove_tags):
        return  # no tag call at all
    count = gateway.fitting(case.several, operation, targets)
    assert 1 <= count <= len(targets)
    for length in range(1, len(targets) + 1):
        call = CallSpec("c", GUID, operation, tuple(targets[:length]))
        if length <= count:
            assert gateway.build(case.several, call).body
        else:
            with pytest.raises(RequestBuildError):
                gateway.build(case.several, call)


def test_fitting_nothing_is_nothing(case, operation):
    gateway = get_gateway(case.several.kind)
    assert gateway.fitting(case.several, operation, ()) == 0
    too_many = call_of_several(operation, 51)
    assert gateway.fitting(case.several, operation, too_many.targets) == 50
