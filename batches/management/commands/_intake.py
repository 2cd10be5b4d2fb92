"""How commands that take a file in say no."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand
from django.utils.translation import gettext as _

from batches.domain.errors import InvalidInputError
from batches.domain.problems import Problem
from batches.intake.report import problem_from_json, problems_of, reason_from_json

#: exit code of a refusal
REFUSED = 2


def say_refused(
    command: BaseCommand,
    error: InvalidInputError | OSError,
    *,
    as_json: bool,
) -> None:
    """The reasons, for people on stderr, with `--json` for programs on stdout too."""
    problems = (
        problems_of(error)
        if isinstance(error, InvalidInputError)
        else [Problem("file_unreadable", "%(why)s", {"why": str(error)})]
    )
    sentences = [problem.translated(_) for problem in problems]
    for sentence in sentences:
        command.stderr.write(sentence)
    if as_json:
        command.stdout.write(
            json.dumps(
                {
                    "error": "\n".join(sentences),
                    "problems": [
                        {"code": problem.code, "text": sentence}
                        for problem, sentence in zip(problems, sentences, strict=True)
                    ],
                },
                ensure_ascii=False,
            )
        )


def reasons(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Why a file was refused, and its bad rows by reason, in the reader's language."""
    found = [
        {"code": entry["code"], "text": problem_from_json(entry).translated(_)}
        for entry in report["problems"]
    ]
    return found + [
        {
            "code": entry["code"],
            "text": reason_from_json(entry).translated(_),
            "count": entry["count"],
            "example_row": entry["example_row"],
        }
        for entry in report["by_reason"]
    ]
