"""The whole suite in two parts: what runs in one process side by side, then what starts others.

python -m tests [ARGUMENTS OF PYTEST]

With arguments it is pytest and nothing else.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence

#: no processes of their own, no browser, nothing shared: two processes share the machine's cores
SIDE_BY_SIDE = (
    "tests/unit",
    "tests/integration/engine",
    "tests/integration/intake",
    "tests/integration/screens",
    "tests/integration/services",
    "tests/integration/store",
)
#: minutes of waiting on servers of their own: they run beside the second part
BESIDE = ("tests/drills/test_rates.py", "tests/drills/test_faults.py")


def _command(*arguments: str) -> list[str]:
    print("pytest", *arguments, flush=True)
    return [sys.executable, "-m", "pytest", *arguments]


def _pytest(*arguments: str) -> int:
    return subprocess.run(_command(*arguments), check=False).returncode


def _second_part() -> int:
    """Two processes of pytest; what the one beside said comes in one piece at its end."""
    ignored = (f"--ignore={path}" for path in (*SIDE_BY_SIDE, *BESIDE))
    with tempfile.TemporaryFile() as said:
        beside = subprocess.Popen(
            _command(*BESIDE, "-p", "no:cacheprovider"), stdout=said, stderr=said
        )
        try:
            rest = _pytest("tests", *ignored)
            waited = beside.wait()
        finally:
            beside.terminate()
            beside.wait()
            said.seek(0)
            print(said.read().decode(errors="replace"), flush=True)
    return rest or waited


def main(arguments: Sequence[str]) -> int:
    """The exit code of pytest; of the part that failed, if one did."""
    if arguments:
        return _pytest(*arguments)
    first = _pytest("-n", "2", *SIDE_BY_SIDE)
    return _second_part() or first


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
