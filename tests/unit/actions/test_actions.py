"""The three actions: columns, parameters, row checks and targets."""

from __future__ import annotations

import pytest

from batches.actions.base import Action
from batches.actions.registry import all_actions, get_action
from batches.domain.errors import InvalidInputError
from batches.gateways.base import Operation, TargetSpec
from batches.gateways.registry import get_gateway
from tests.unit.gateways.cases import CASES, call_of

COLUMNS = ("账号", "客户ID", "客户姓名", "城市", "标签")
MAPPING = {"account": 0, "target": 1, "name": 2, "tags": 4}
TARGET = "7881300000000000"
ROW = ("1688850000000000", TARGET, "王芳", "重庆", "101|102")


def column_of(action: Action, header: str) -> str | None:
    return next((spec.key for spec in action.columns if spec.matches(header)), None)


def codes(problems) -> list[str]:
    assert all(str(problem) for problem in problems)
    return [problem.code for problem in problems]


def refused(action: Action, params, columns=COLUMNS, mapping=MAPPING) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        action.compile(params, columns, mapping)
    return codes(caught.value.problems)


# --- what every action keeps --------------------------------------------------------------------

EVERY = pytest.mark.parametrize("action", all_actions(), ids=lambda action: action.name)


@EVERY
def test_action_is_found_by_its_name_and_operation(action):
    assert type(get_action(action.name)) is type(action)
    assert action.operation in Operation
    assert action.confirm_policies[0] == "response"


@EVERY
def test_action_requires_account_and_target(action):
    assert {spec.key for spec in action.columns if spec.required} == {"account", "target"}


@EVERY
@pytest.mark.parametrize(
    ("header", "key"),
    [
        ("账号", "account"),
        ("account", "account"),
        ("Account ID", "account"),
        ("GUID", "account"),
        ("toId", "target"),
        ("姓名", "name"),
        ("备注名", "name"),
        ("客户姓名", "name"),
        ("name", "name"),
        ("备注", None),
        ("城市", None),
        ("积分", None),
    ],
)
def test_action_headers_mean_columns(action, header, key):
    assert column_of(action, header) == key


@EVERY
def test_action_unknown_param_is_named(action):
    problems = action.validate_params({"contnet": "x", "content": "x", "tags": "1"})
    assert "param_unknown" in codes(problems)
    assert "contnet" in "".join(map(str, problems))


@EVERY
def test_action_targets_per_call_follow_the_gateway_up_to_fifty(action):
    assert [action.max_targets_per_call(n) for n in (0, 1, 30, 1000)] == [1, 1, 30, 50]


def test_get_action_unknown_name_is_refused():
    with pytest.raises(InvalidInputError, match="send_txt"):
        get_action("send_txt")


# --- texts --------------------------------------------------------------------------------------

SEND = get_action("send_text")
WELCOME = get_action("set_group_welcome")


@pytest.mark.parametrize(
    "header",
    ["客户ID", "外部联系人ID", "external_userid", "External UserID", "ｔｏＩｄ", "客户 id"],
)
def test_send_text_customer_headers(header):
    assert column_of(SEND, header) == "target"
    assert column_of(SEND, "群ID") is None


@pytest.mark.parametrize("header", ["群ID", "chat_id", "ChatID", "roomId", "room id"])
def test_set_group_welcome_group_headers(header):
    assert column_of(WELCOME, header) == "target"
    assert column_of(WELCOME, "客户ID") is None


def test_send_text_row_becomes_a_target():
    compiled = SEND.compile({"content": "{姓名}你好，{城市}"}, COLUMNS, MAPPING)
    assert compiled.check_row(TARGET, ROW) == []
    assert compiled.to_target(TARGET, ROW) == TargetSpec(TARGET, "王芳你好，重庆")
    assert compiled.operation is Operation.SEND_TEXT


def test_set_group_welcome_row_becomes_a_target():
    compiled = WELCOME.compile({"content": "欢迎"}, ("账号", "群ID"), {"account": 0, "target": 1})
    target = "10888000000000001"
    assert compiled.check_row(target, ("1", target)) == []
    assert compiled.to_target(target, ("1", target)) == TargetSpec(target, "欢迎")
    assert compiled.operation is Operation.SET_GROUP_WELCOME


@pytest.mark.parametrize(
    ("content", "shared"), [("你好", True), ("{{你好}}", True), ("{姓名}你好", False)]
)
def test_send_text_content_is_shared_where_no_placeholder_makes_it_differ(content, shared):
    assert SEND.compile({"content": content}, COLUMNS, MAPPING).shared_content is shared


def test_set_group_welcome_content_is_never_shared():
    assert WELCOME.compile({"content": "欢迎"}, COLUMNS, MAPPING).shared_content is False


def test_check_row_empty_value_names_the_placeholder():
    compiled = SEND.compile({"content": "{姓名}{name}你好"}, COLUMNS, MAPPING)
    (problem,) = compiled.check_row(TARGET, ("1", TARGET, " ", "重庆"))
    assert problem.code == "placeholder_empty"
    assert "{姓名}" in str(problem)


@pytest.mark.parametrize("value", ["#N/A", "1.68885E+15"])
def test_check_row_damaged_value_names_the_placeholder(value):
    compiled = SEND.compile({"content": "{城市}"}, COLUMNS, MAPPING)
    (problem,) = compiled.check_row(TARGET, ("1", TARGET, "王芳", value))
    assert problem.code == "placeholder_damaged"
    assert "{城市}" in str(problem)
    assert value in str(problem)


def test_check_row_unused_empty_or_damaged_column_passes():
    compiled = SEND.compile({"content": "你好"}, COLUMNS, MAPPING)
    assert compiled.check_row(TARGET, ("1", TARGET, "", "#N/A")) == []


def test_check_row_content_limit_counts_utf8_bytes_of_the_rendered_text():
    compiled = SEND.compile({"content": "{城市}"}, COLUMNS, MAPPING)
    assert compiled.check_row(TARGET, ("1", TARGET, "", "长" * 1333)) == []
    (problem,) = compiled.check_row(TARGET, ("1", TARGET, "", "长" * 1334))
    assert problem.code == "content_too_long"
    assert "4002" in str(problem)


def test_registry_content_limit_is_a_setting(settings):
    settings.MESSAGE_MAX_BYTES = 3
    assert codes(get_action("send_text").validate_params({"content": "abcd"})) == ["param_too_long"]


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({}, "param_empty"),
        ({"content": ""}, "param_empty"),
        ({"content": " \n\u3000"}, "param_empty"),
        ({"content": 5}, "param_not_text"),
        ({"content": None}, "param_not_text"),
        ({"content": "a\x00b"}, "param_control_character"),
        ({"content": "长" * 1334}, "param_too_long"),
        ({"content": "你好{姓名"}, "template_brace_unbalanced"),
        ({"content": "x", "to": "y"}, "param_unknown"),
    ],
)
def test_send_text_bad_params_are_refused_before_and_at_compile(params, code):
    assert codes(SEND.validate_params(params)) == [code]
    assert refused(SEND, params) == [code]


def test_send_text_param_may_hold_line_ends_and_emoji():
    assert SEND.validate_params({"content": "一\r\n二\t🎉"}) == []


def test_send_text_unknown_placeholder_is_refused_at_compile():
    assert SEND.validate_params({"content": "{昵称x}"}) == []
    assert refused(SEND, {"content": "{昵称x}"}) == ["template_placeholder_unknown"]


def test_send_text_warns_of_doubled_braces():
    compiled = SEND.compile({"content": "{{姓名}}"}, COLUMNS, MAPPING)
    assert codes(compiled.warnings) == ["template_brace_doubled"]


# --- tags ---------------------------------------------------------------------------------------

TAGS = get_action("tag_customers")


@pytest.mark.parametrize("header", ["标签", "tags", "Tag_IDs", "labels"])
def test_tag_customers_tag_headers(header):
    assert column_of(TAGS, header) == "tags"


@pytest.mark.parametrize(
    "cell", ["101|102", "101;102", "101；102", "101，102", "101、102", "101 102", " 101, 102 |101"]
)
def test_tag_customers_cell_is_split(cell):
    compiled = TAGS.compile({}, COLUMNS, MAPPING)
    row = (*ROW[:4], cell)
    assert compiled.check_row(TARGET, row) == []
    assert compiled.to_target(TARGET, row) == TargetSpec(TARGET, tags=("101", "102"))


def test_tag_customers_remove_mode():
    compiled = TAGS.compile({"mode": "remove"}, COLUMNS, MAPPING)
    assert compiled.to_target(TARGET, ROW) == TargetSpec(TARGET, remove_tags=("101", "102"))


def test_tag_customers_param_serves_rows_without_tags():
    compiled = TAGS.compile({"tags": "7;8"}, COLUMNS, MAPPING)
    assert compiled.to_target(TARGET, ROW[:4]) == TargetSpec(TARGET, tags=("7", "8"))
    assert compiled.to_target(TARGET, ROW) == TargetSpec(TARGET, tags=("101", "102"))
    assert compiled.check_row(TARGET, (*ROW[:4], " ")) == []


@pytest.mark.parametrize("params", [{}, {"tags": "1"}, {"mode": "remove"}])
def test_tag_customers_rows_may_share_a_call_each_with_its_own_tags(params):
    assert TAGS.compile(params, COLUMNS, MAPPING).shared_content is True


def test_tag_customers_row_without_any_tag_is_refused():
    compiled = TAGS.compile({}, COLUMNS, MAPPING)
    assert codes(compiled.check_row(TARGET, (*ROW[:4], " | "))) == ["tags_empty"]


def test_tag_customers_neither_column_nor_param_is_refused():
    assert refused(TAGS, {}, COLUMNS[:4], {"account": 0, "target": 1}) == ["tags_missing"]


@pytest.mark.parametrize(
    ("cell", "code"),
    [
        ("|".join(map(str, range(1, 22))), "tags_too_many"),
        ("1.4E+15", "tag_malformed"),
        ("老客户", "tag_malformed"),
    ],
)
def test_tag_customers_bad_tags_are_refused_in_cell_and_param(cell, code):
    compiled = TAGS.compile({}, COLUMNS, MAPPING)
    assert codes(compiled.check_row(TARGET, (*ROW[:4], cell))) == [code]
    assert refused(TAGS, {"tags": cell}) == [code]


def test_tag_customers_twenty_tags_pass():
    cell = "|".join(map(str, range(1, 21)))
    assert TAGS.compile({}, COLUMNS, MAPPING).check_row(TARGET, (*ROW[:4], cell)) == []


def test_tag_customers_unknown_mode_is_refused():
    assert refused(TAGS, {"mode": "replace", "tags": "1"}) == ["param_choice_unknown"]


@EVERY
def test_check_target_knows_ids_of_another_gateway(action):
    official = "wrAbcdefghijklmnop" if action.name == "set_group_welcome" else "wmAbcdefghijklmnop"
    assert action.check_target(official, gateway_kind="wecomapi").code == "id_foreign"
    assert action.check_target(official, gateway_kind="other") is None


@EVERY
def test_target_of_every_action_can_be_built(action):
    params = {"tags": "1"} if action.name == "tag_customers" else {"content": "x"}
    spec = action.compile(params, COLUMNS[:4], MAPPING | {"tags": 4}).to_target(TARGET, ROW[:4])
    for case in CASES:
        gateway = get_gateway(case.config.kind)
        assert gateway.build(case.config, call_of(action.operation, spec)).body
