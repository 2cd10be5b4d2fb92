"""Expected refusals of an operator's wish; each carries a message in the operator's words."""

from __future__ import annotations

from .problems import Problem


class BatchesError(Exception):
    """Base of all errors of this application; `str(error)` is fit for an operator."""


class WrongStateError(BatchesError):
    """The object is in a state that does not allow the verb (409 in the browser, exit 3)."""


class StaleVersionError(WrongStateError):
    """The object changed since the page was loaded (409); `own`: by the same person's own act."""

    def __init__(self, text: str, *, own: bool = False) -> None:
        super().__init__(text)
        self.own = own


class InvalidInputError(BatchesError):
    """What was given cannot be used; `problems` lists what, where and the cure (exit 2)."""

    def __init__(self, *problems: Problem | str) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class NotAllowedError(BatchesError):
    """The actor lacks the permission for the verb (403)."""
