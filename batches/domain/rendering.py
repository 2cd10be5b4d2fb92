"""Message templates: `{column}` placeholders, resolved once per file, rendered once per row."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .columns import canonical_key, normal_header
from .errors import InvalidInputError
from .problems import Names, Problem
from .text import N_

#: `{{`, `}}`, a placeholder, or a brace that belongs to none of these
_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_WIDE_BRACES = re.compile(r"｛([^{}｛｝]*)｝")
_DOUBLED = re.compile(r"(?<!\{)\{\{([^{}]*)\}\}(?!\})")
_CONTEXT = 12
#: Around a cell's value these carry no meaning; U+FEFF and U+200B survive `str.strip()`.
_BLANK = " \t\r\n\v\f\u00a0\u3000\ufeff\u200b"


@dataclass(frozen=True, slots=True)
class _Slot:
    """A placeholder as written, and where it stands in the text."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Template:
    """A text whose placeholders are bound to columns of one file."""

    #: placeholder names as written, each once, in order of appearance
    placeholders: tuple[str, ...]
    #: literal text, or the index of the column whose value goes there
    parts: tuple[str | int, ...]
    #: column index of each placeholder
    indices: tuple[int, ...]
    #: not wrong, but probably not meant
    warnings: tuple[Problem, ...] = ()

    def render(self, fields: Sequence[str]) -> str:
        """The text for one row; a missing or blank cell renders as nothing (see `empty_in`)."""
        return "".join(
            part if isinstance(part, str) else _cell(fields, part) for part in self.parts
        )

    def empty_in(self, fields: Sequence[str]) -> list[str]:
        """The placeholders that have no value in this row."""
        return [
            name
            for name, index in zip(self.placeholders, self.indices, strict=True)
            if not _cell(fields, index)
        ]

    def values_in(self, fields: Sequence[str]) -> Iterator[tuple[str, str]]:
        """The value of each column used, under the first placeholder that names it."""
        seen: set[int] = set()
        for name, index in zip(self.placeholders, self.indices, strict=True):
            if index not in seen:
                seen.add(index)
                yield name, _cell(fields, index)


def _cell(fields: Sequence[str], index: int) -> str:
    return fields[index].strip(_BLANK) if index < len(fields) else ""


def _parse(text: str) -> tuple[list[str | _Slot], list[Problem]]:
    """Split a template into literals and slots; every fault of its syntax is listed."""
    tokens: list[str | _Slot] = []
    problems: list[Problem] = []
    end = 0
    for match in _TOKEN.finditer(text):
        tokens.append(text[end : match.start()])
        end = match.end()
        found, name = match.group(), match.group(1)
        if found in ("{{", "}}"):
            tokens.append(found[0])
        elif name is None:
            problems.append(_unbalanced(text, match.start()))
        elif not normal_header(name):
            problems.append(
                Problem(
                    "template_placeholder_empty",
                    N_("模板第 %(position)s 个字符处的占位符 {} 是空的，请在括号内填写列名。"),
                    {"position": match.start() + 1},
                )
            )
        else:
            tokens.append(_Slot(name, match.start()))
    tokens.append(text[end:])
    return [token for token in tokens if token != ""], problems


def _unbalanced(text: str, at: int) -> Problem:
    return Problem(
        "template_brace_unbalanced",
        N_(
            "模板第 %(position)s 个字符处的大括号不成对（“%(near)s”）。"
            "占位符写成 {列名}；要原样显示大括号，请写 {{ 或 }}。"
        ),
        {"position": at + 1, "near": text[max(0, at - 2) : at + _CONTEXT]},
    )


def syntax_problems(text: str) -> list[Problem]:
    """Faults that show without knowing the file's columns."""
    return _parse(text)[1]


def compile_template(text: str, columns: Sequence[str], mapping: Mapping[str, int]) -> Template:
    """Bind a template to a file's columns.

    `columns` are the headers in file order, `mapping` the column index of each canonical key.
    A placeholder means the column of exactly that header, else the column mapped to the
    canonical key that it names or is an alias of. Raises InvalidInputError listing every fault.
    """
    tokens, problems = _parse(text)
    resolve = _Resolver(columns, mapping)
    bound: dict[str, int] = {}
    parts: list[str | int] = []
    for token in tokens:
        if isinstance(token, str):
            if parts and isinstance(parts[-1], str):
                parts[-1] += token
            else:
                parts.append(token)
            continue
        name = normal_header(token.name)
        found = bound.get(name)
        if found is None:
            answer = resolve(name)
            if isinstance(answer, Problem):
                problems.append(answer)
                continue
            found = bound[name] = answer
        parts.append(found)
    problems.extend(_wide_brace_problems(text, resolve))
    if problems:
        raise InvalidInputError(*dict.fromkeys(problems))
    return Template(
        placeholders=tuple(bound),
        parts=tuple(parts),
        indices=tuple(bound.values()),
        warnings=tuple(_double_brace_warnings(text, resolve)),
    )


class _Resolver:
    """Finds the column that a placeholder names."""

    def __init__(self, columns: Sequence[str], mapping: Mapping[str, int]) -> None:
        self.columns = columns
        self.mapping = mapping
        self.by_header: dict[str, list[int]] = {}
        for index, header in enumerate(columns):
            self.by_header.setdefault(normal_header(header), []).append(index)

    def __call__(self, name: str) -> int | Problem:
        found = self.by_header.get(name, [])
        if len(found) == 1:
            return found[0]
        key = canonical_key(name)
        mapped = self.mapping.get(key) if key else None
        if mapped is not None and (not found or mapped in found):
            return mapped
        values = {"name": name, "columns": Names(filter(None, map(str.strip, self.columns)))}
        if found:
            return Problem(
                "template_placeholder_ambiguous",
                N_(
                    "占位符 {%(name)s} 对应多列同名的表头，无法确定用哪一列。"
                    "请在文件中改成不同的列名。现有列：%(columns)s。"
                ),
                values,
            )
        return Problem(
            "template_placeholder_unknown",
            N_(
                "占位符 {%(name)s} 找不到对应的列。现有列：%(columns)s。"
                "请改用其中一个列名，或在文件中加上这一列。"
            ),
            values,
        )

    def knows(self, name: str) -> bool:
        return not isinstance(self(normal_header(name)), Problem)


def _wide_brace_problems(text: str, resolve: _Resolver) -> Iterator[Problem]:
    """Full-width braces around a column's name would go out literally to everybody."""
    for match in _WIDE_BRACES.finditer(text):
        if resolve.knows(match.group(1)):
            yield Problem(
                "template_brace_wide",
                N_("“%(found)s”用的是全角大括号，会原样发出。请改成半角 {%(name)s}。"),
                {"found": match.group(), "name": normal_header(match.group(1))},
            )


def _double_brace_warnings(text: str, resolve: _Resolver) -> Iterator[Problem]:
    """`{{name}}` is what other template languages use; here it shows `{name}`."""
    for name in dict.fromkeys(_DOUBLED.findall(text)):
        if normal_header(name) and resolve.knows(name):
            yield Problem(
                "template_brace_doubled",
                N_(
                    "{{%(name)s}} 会原样显示为 {%(name)s}，不会换成该列的值。若要取值请写单层括号。"
                ),
                {"name": normal_header(name)},
            )
