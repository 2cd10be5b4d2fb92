"""The whole suite in two parts: what only computes side by side, what watches the clock by itself.

python -m tests [ARGUMENTS OF PYTEST]

With arguments it is pytest and nothing else.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

#: no processes of their own, no browser, nothing shared: two processes share the machine's cores
SIDE_BY_SIDE = (
    "unit",
    "integration/engine",
    "integration/intake",
    "integration/screens",
    "integration/services",
    "integration/store",
)


def _pytest(*arguments: str) -> int:
    print("pytest", *arguments, flush=True)
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


def main(arguments: Sequence[str]) -> int:
    """The exit code of pytest; of the part that failed, if one did."""
    if arguments:
        return _pytest(*arguments)
    folders = [f"tests/{name}" for name in SIDE_BY_SIDE]
    first = _pytest("-n", "2", *folders)
    rest = _pytest("tests", *(f"--ignore={folder}" for folder in folders))
    return first or rest


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
