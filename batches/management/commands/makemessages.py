"""makemessages that also finds this project's short markers `_l` and `N_`."""

from __future__ import annotations

from django.core.management.commands import makemessages


class Command(makemessages.Command):
    """`N_` marks strings in `domain` (no Django there), `_l` is gettext_lazy."""

    xgettext_options = [
        *makemessages.Command.xgettext_options,
        "--keyword=N_",
        "--keyword=_l",
    ]
