"""Write docs/states.md from the state tables, or check that it is fresh."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from ._states_page import states_page


class Command(BaseCommand):
    help = "Writes docs/states.md from the state tables; --check exits 1 if it is not fresh."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true", help="write nothing")

    def handle(self, *_args: Any, **options: Any) -> None:
        path = settings.BASE_DIR / "docs" / "states.md"
        wanted = states_page()
        if path.is_file() and path.read_text(encoding="utf-8") == wanted:
            return
        if options["check"]:
            raise CommandError("docs/states.md is not fresh; run manage.py docs_states.")
        path.write_text(wanted, encoding="utf-8")
        self.stdout.write(f"{path.name} written")
