"""Who acts without being a user of the console: somebody at the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .problems import Problem, Term
from .text import N_

#: begins the stored name of somebody at the command line; '' alone is the system itself
SHELL_SIGN = "cli:"
#: longest name that the audit keeps
ACTOR_NAME_MAX = 150


@dataclass(frozen=True, slots=True)
class Shell:
    """The command line of a machine, in the hands of one of its users."""

    user: str
    host: str

    @property
    def stored_name(self) -> str:
        """The same in every language; `shell_of` gives back what a screen words."""
        return f"{SHELL_SIGN}{self.user}@{self.host}"[:ACTOR_NAME_MAX]


def shell_of(actor_name: str) -> str:
    """`user@host` of a name that a command line left, '' for any other."""
    return actor_name.removeprefix(SHELL_SIGN) if actor_name.startswith(SHELL_SIGN) else ""


def named(actor_name: str) -> str | Problem:
    """A stored name in words, for whoever translates at the edge."""
    if not actor_name:
        return Term(N_("系统"))
    if shell := shell_of(actor_name):
        return Problem("shell", N_("命令行 %(shell)s"), {"shell": shell})
    return actor_name


def actor_words(actor_name: str, gettext: Callable[[str], str]) -> str:
    """The same, in the language that `gettext` speaks."""
    words = named(actor_name)
    if isinstance(words, Problem):
        return words.translated(gettext)
    return gettext(words) if isinstance(words, Term) else words
