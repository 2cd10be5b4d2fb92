"""How commands say that something was refused."""

from __future__ import annotations

import json
import sys
from typing import NoReturn

from django.core.management.base import BaseCommand, CommandError
from django.utils.translation import gettext as _

from batches.domain.errors import (
    BatchesError,
    InvalidInputError,
    NotAllowedError,
    StaleVersionError,
    WrongStateError,
)
from batches.domain.problems import Problem

BAD_INPUT, WRONG_STATE = 2, 3
_CODES: tuple[tuple[type[BatchesError], str, int], ...] = (
    (StaleVersionError, "stale_version", WRONG_STATE),
    (WrongStateError, "wrong_state", WRONG_STATE),
    (NotAllowedError, "not_allowed", BAD_INPUT),
    (InvalidInputError, "invalid_input", BAD_INPUT),
)


def fail(command: BaseCommand, error: BatchesError, *, as_json: bool) -> NoReturn:
    """End the command: 2 for bad input, 3 where the state does not allow it.

    With `as_json`, `{"error", "code"}` goes to standard output instead of a line to standard
    error.
    """
    code, status = next(
        ((code, status) for kind, code, status in _CODES if isinstance(error, kind)),
        ("error", BAD_INPUT),
    )
    text = str(error)
    if isinstance(error, InvalidInputError):
        text = "\n".join(
            problem.translated(_) if isinstance(problem, Problem) else problem
            for problem in error.problems
        )
    if not as_json:
        raise CommandError(text, returncode=status)
    command.stdout.write(json.dumps({"error": text, "code": code}, ensure_ascii=False))
    sys.exit(status)
