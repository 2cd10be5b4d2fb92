"""makemessages that also finds this project's short markers `_l` and `N_`."""

from __future__ import annotations

from typing import Any

from django.core.management.commands import makemessages

#: no strings of ours: installed packages, what a run leaves behind, the tests
NOT_OURS = (".venv", "var", "build", "dist", "tests")


class Command(makemessages.Command):
    """`N_` marks strings in `domain` (no Django there), `_l` is gettext_lazy."""

    xgettext_options = [
        *makemessages.Command.xgettext_options,
        "--keyword=N_",
        "--keyword=_l",
    ]

    def handle(self, *args: Any, **options: Any) -> None:
        options["ignore_patterns"] = [*options["ignore_patterns"], *NOT_OURS]
        super().handle(*args, **options)
