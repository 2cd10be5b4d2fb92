"""What is wrong with an input, as data: a code, a text of the catalogue, its values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from .text import N_

#: between the words of a list
SEPARATOR = N_("、")


class Term(str):
    """A value inside a problem that is itself a text of the catalogue (a column's label, say)."""

    __slots__ = ()


class Names(str):
    """Several words in one value, parted as the reader's language parts them."""

    __slots__ = ("words",)
    words: tuple[str, ...]

    def __new__(cls, words: Iterable[str]) -> Self:
        words = tuple(words)
        names = super().__new__(cls, SEPARATOR.join(words))
        names.words = words
        return names

    def __reduce__(self) -> tuple[type[Names], tuple[tuple[str, ...]]]:
        return Names, (self.words,)

    def translated(self, gettext: Callable[[str], str]) -> str:
        return gettext(SEPARATOR).join(self.words)


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault and its cure, in the operator's words.

    `text` is a catalogue text with named `%(name)s` placeholders, `params` their values.
    `str(problem)` is the Chinese sentence; a screen calls `problem.translated(gettext)`.
    """

    code: str
    text: str
    params: Mapping[str, object] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return self.text % self.params

    def translated(self, gettext: Callable[[str], str]) -> str:
        """The sentence in the language that `gettext` speaks, terms and problems in it too."""
        return gettext(self.text) % {
            name: _translated(value, gettext) for name, value in self.params.items()
        }


def _translated(value: object, gettext: Callable[[str], str]) -> object:
    if isinstance(value, Problem | Names):
        return value.translated(gettext)
    return gettext(str(value)) if isinstance(value, Term) else value
