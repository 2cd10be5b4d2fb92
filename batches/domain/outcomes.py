"""What one call came to, per target: a value, never an exception."""

from __future__ import annotations

from dataclasses import dataclass

from .categories import Category


@dataclass(frozen=True, slots=True)
class Accepted:
    """The gateway took the request for this target."""

    msg_id: str = ""
    #: True where the answer itself proves the effect (confirm policy `response`)
    final: bool = True


@dataclass(frozen=True, slots=True)
class Refused:
    """A definite no: nothing was executed for this target."""

    category: Category
    code: str = ""
    message: str = ""
    #: seconds the gateway asked to wait, if it said so
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class NotSent:
    """The request never left this machine."""

    category: Category
    message: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """No answer that proves anything: the target is in doubt and is never sent again by itself."""

    category: Category
    message: str = ""


Outcome = Accepted | Refused | NotSent | Unknown
