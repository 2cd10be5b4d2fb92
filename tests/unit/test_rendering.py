"""Templates: binding placeholders to columns, rendering rows, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batches.domain.errors import InvalidInputError
from batches.domain.problems import Problem
from batches.domain.rendering import compile_template, syntax_problems

COLUMNS = ("账号", "客户ID", "客户姓名", "城市", "备注")
MAPPING = {"account": 0, "target": 1, "name": 2}
ROW = ("1688850000000000", "7881300000000000", "王芳", "重庆", "多行\n备注")


def problems_of(text: str, columns=COLUMNS, mapping=MAPPING) -> list[Problem]:
    with pytest.raises(InvalidInputError) as caught:
        compile_template(text, columns, mapping)
    assert all(isinstance(problem, Problem) for problem in caught.value.problems)
    return list(caught.value.problems)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("你好", "你好"),
        ("你好{客户姓名}", "你好王芳"),
        ("{城市}的{姓名}，{备注}", "重庆的王芳，多行\n备注"),
        ("{ 城市 }", "重庆"),
        ("{客户ID}", "7881300000000000"),
        ("100% {{原样}}", "100% {原样}"),
        ("{{{城市}}}", "{重庆}"),
        ("", ""),
    ],
)
def test_render_fills_in_the_row(text, expected):
    assert compile_template(text, COLUMNS, MAPPING).render(ROW) == expected


@pytest.mark.parametrize("name", ["name", "姓名", "客户姓名", "Name", "NAME", "备注名", "ｎａｍｅ"])
def test_placeholder_alias_finds_the_mapped_column(name):
    template = compile_template(f"{{{name}}}", COLUMNS, MAPPING)
    assert template.render(ROW) == "王芳"


def test_placeholder_exact_header_beats_alias():
    template = compile_template("{name}", ("name", "客户姓名"), {"name": 1})
    assert template.render(("A", "B")) == "A"


def test_placeholder_header_is_compared_folded():
    template = compile_template("{Ａ列}", ("\ufeffA列 ",), {})
    assert template.render(("x",)) == "x"


def test_render_trims_cells_and_keeps_inner_space():
    template = compile_template("<{城市}>", COLUMNS, MAPPING)
    assert template.render(("", "", "", "\u3000北 京\t")) == "<北 京>"


def test_render_short_row_counts_as_empty():
    template = compile_template("{备注}{城市}", COLUMNS, MAPPING)
    assert template.render(("1", "2", "3", "北京")) == "北京"
    assert template.empty_in(("1", "2", "3", "北京")) == ["备注"]


def test_empty_in_names_blank_placeholders_as_written():
    template = compile_template("{name}{城市}", COLUMNS, MAPPING)
    assert template.placeholders == ("name", "城市")
    assert template.empty_in(("", "", "\u00a0\ufeff", "北京")) == ["name"]


def test_values_in_gives_each_column_once():
    template = compile_template("{name}{姓名}{城市}", COLUMNS, MAPPING)
    assert list(template.values_in(ROW)) == [("name", "王芳"), ("城市", "重庆")]


def test_compile_unknown_placeholder_names_it_and_the_columns():
    (problem,) = problems_of("你好{nmae}")
    assert problem.code == "template_placeholder_unknown"
    assert "{nmae}" in str(problem)
    assert "账号、客户ID、客户姓名、城市、备注" in str(problem)


def test_compile_alias_of_an_unmapped_column_is_unknown():
    (problem,) = problems_of("{标签}")
    assert problem.code == "template_placeholder_unknown"


@pytest.mark.parametrize("text", ["{", "}", "你好{name", "name}你好", "{{name}", "{a{name}"])
def test_compile_unbalanced_brace_is_refused(text):
    assert "template_brace_unbalanced" in {problem.code for problem in problems_of(text)}


@pytest.mark.parametrize("text", ["{}", "{ }", "{\u3000}"])
def test_compile_empty_placeholder_is_refused(text):
    assert [problem.code for problem in problems_of(text)] == ["template_placeholder_empty"]


def test_compile_full_width_braces_around_a_column_are_refused():
    assert [problem.code for problem in problems_of("｛姓名｝你好")] == ["template_brace_wide"]
    assert compile_template("｛注｝", COLUMNS, MAPPING).render(ROW) == "｛注｝"


def test_compile_duplicate_header_is_refused_unless_mapped():
    columns = ("城市", "城市", "姓名", "姓名")
    (problem,) = problems_of("{城市}", columns, {"name": 3})
    assert problem.code == "template_placeholder_ambiguous"
    template = compile_template("{姓名}", columns, {"name": 3})
    assert template.render(("a", "b", "c", "d")) == "d"


def test_compile_lists_every_fault():
    codes = [problem.code for problem in problems_of("{x}{}{y}{")]
    assert sorted(codes) == [
        "template_brace_unbalanced",
        "template_placeholder_empty",
        "template_placeholder_unknown",
        "template_placeholder_unknown",
    ]


def test_compile_doubled_braces_around_a_column_warn():
    template = compile_template("{{姓名}} {{别的}} {{{城市}}}", COLUMNS, MAPPING)
    assert [problem.params["name"] for problem in template.warnings] == ["姓名"]


def test_syntax_problems_need_no_columns():
    assert syntax_problems("{whatever}") == []
    assert [problem.code for problem in syntax_problems("{")] == ["template_brace_unbalanced"]


@given(st.text())
def test_compile_escaped_text_renders_as_itself(text):
    escaped = text.replace("{", "{{").replace("}", "}}")
    template = compile_template(escaped, (), {})
    assert template.render(()) == text


@given(st.text(alphabet="{}ab ｛｝%", max_size=12), st.text(), st.text())
def test_compile_any_text_gives_a_template_or_problems(text, first, second):
    problems: tuple[object, ...] = ()
    rendered = None
    try:
        rendered = compile_template(text, ("a", "b"), {}).render((first, second))
    except InvalidInputError as error:
        problems = error.problems
    assert isinstance(rendered, str) != bool(problems)
    assert all(str(problem) for problem in problems)


def test_problem_translates_its_text_terms_and_inner_problems():
    from batches.domain.problems import Term

    inner = Problem("inner", "里 %(n)s", {"n": 1})
    problem = Problem("outer", "外 %(label)s %(why)s", {"label": Term("列"), "why": inner})
    catalogue = {
        "里 %(n)s": "in %(n)s",
        "外 %(label)s %(why)s": "out %(label)s %(why)s",
        "列": "col",
    }
    assert str(problem) == "外 列 里 1"
    assert problem.translated(catalogue.__getitem__) == "out col in 1"
