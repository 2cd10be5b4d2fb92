"""Measures what the console must reach and prints one table of ratios.

    python -m benchmarks [engine|held|flat|intake|pages|all] [--quick] [--items N]

Starts a PostgreSQL and a Valkey of its own on temporary folders. Nothing else should run on the
machine; what counts are ratios within one run.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import subprocess
import sys
import time

import django

from wecom_ops.local.stopping import raise_on_signals

from . import ground

SECTIONS = ("engine", "held", "flat", "intake", "pages")
#: those that put many items into the tables first
SIZED = ("flat", "pages")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("section", nargs="*", default=["all"], choices=[*SECTIONS, "all"])
    parser.add_argument("--quick", action="store_true", help="smaller and shorter, less exact")
    parser.add_argument(
        "--items",
        type=int,
        default=1_000_000,
        help="how many items lie in the tables of flat and pages, a million or more;"
        " ten million take some 12 GB of disk and a quarter of an hour",
    )
    options = parser.parse_args()
    if options.items < 1_000_000:
        parser.error("--items: a million or more; --quick makes it smaller")
    wanted = SECTIONS if "all" in options.section else options.section
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"
    raise_on_signals()  # so that the servers and their folders go, whatever ends this
    started = time.monotonic()
    table = ground.Table()
    with ground.own_servers():
        ground.migrate()
        django.setup()
        for name in wanted:
            if name == "intake":
                intake(table, quick=options.quick)
            else:
                sized = {"items": options.items} if name in SIZED else {}
                section = importlib.import_module(f"benchmarks.{name}")
                section.run(table, quick=options.quick, **sized)
    print(f"\n{table}\n\n{time.monotonic() - started:.0f} s")


def intake(table: ground.Table, *, quick: bool) -> None:
    """The script that stands on its own, and the figures that it prints."""
    count = 50_000 if quick else 1_000_000
    table.head(f"intake: a file of {count:,} rows")
    told = subprocess.run(
        [sys.executable, str(ground.ROOT / "benchmarks" / "intake.py"), "--rows", str(count)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,  # its exit code says only that a bar was missed
    ).stdout
    found = re.search(r"ratio ([\d.]+) .*peak memory (\d+) MB", told)
    if found is None:
        raise RuntimeError(f"benchmarks/intake.py told nothing: {told}")
    times = re.findall(r"^(intake|bare COPY)[^\d]*([\d.]+ s)", told, re.MULTILINE)
    table.add(
        "read, checked, deduplicated, loaded",
        ", ".join(f"{what} {seconds}" for what, seconds in times),
        f"{found[1]} × a bare COPY",
        "≤ 4",
    )
    table.add("peak memory", f"{found[2]} MB", "", "≤ 300 MB")


if __name__ == "__main__":
    main()
