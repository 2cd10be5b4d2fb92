"""Makes the clone's .venv with the wanted extras; standard library only, run by the bin/ scripts.

    python -I wecom_ops/local/bootstrap.py embedded test

Prints the path of the environment's Python as its last line.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "installed.json"
INPUTS = ("pyproject.toml", "constraints.txt")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def give_up(text: str) -> NoReturn:
    say(text)
    raise SystemExit(1)


def fingerprint() -> str:
    """Changes with the dependencies, and when the clone was moved (scripts hold full paths)."""
    digest = hashlib.sha256(str(ROOT).encode())
    for name in INPUTS:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def installed_extras(wanted_print: str) -> set[str] | None:
    """The extras in .venv, or None where it is missing, stale, cut short or broken."""
    try:
        stamp = json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return None
    return set(stamp["extras"]) if stamp.get("fingerprint") == wanted_print else None


@contextlib.contextmanager
def set_up_lock() -> Iterator[None]:
    """One set-up of this clone at a time; a kill lets go of the lock."""
    (ROOT / "var").mkdir(exist_ok=True)
    with (ROOT / "var" / "setup.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("Another run is setting up this clone; waiting for it …")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def works(*arguments: str) -> bool:
    try:
        done = subprocess.run([PYTHON, *arguments], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def make_venv() -> None:
    fits = works("-c", "import sys; sys.exit(sys.version_info < (3, 11))")
    if fits and works("-m", "pip", "--version"):
        return
    say(f"Making {VENV} with Python {sys.version.split()[0]} …")
    done = subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], check=False)
    if done.returncode:
        give_up(f"Could not make a virtual environment with {sys.executable}.")


def requirements(extras: list[str]) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = list(project["dependencies"])
    for extra in extras:
        found += project["optional-dependencies"][extra]
    return found


def install(extras: list[str]) -> None:
    say(f"Installing the dependencies ({', '.join(['runtime', *extras])}) …")
    # The dependencies alone: the project is not built, so no build tool has to be fetched.
    command: list[str | Path] = [PYTHON, "-m", "pip", "install", "--quiet", "--no-input"]
    command += ["--disable-pip-version-check", "-c", ROOT / "constraints.txt"]
    command += requirements(extras)
    environment = {**os.environ, "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}
    if subprocess.run(command, env=environment, stdout=sys.stderr, check=False).returncode:
        give_up(
            "\nThe dependencies could not be installed; pip's own words are above.\n"
            "Without a way to a package index, point pip at one that you can reach (PIP_INDEX_URL, "
            "or PIP_FIND_LINKS with a folder of wheels, or a proxy by HTTPS_PROXY) and run this "
            "again."
        )


def make_importable() -> None:
    """The project itself runs from the clone, from whatever folder it is called in."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True)
    (Path(done.stdout.strip()) / "wecom-ops-clone.pth").write_text(f"{ROOT}\n", encoding="utf-8")


def main(extras: list[str]) -> None:
    wanted_print = fingerprint()
    # Without the lock first: a ready environment is not held up by another copy's set-up.
    have = installed_extras(wanted_print)
    if have is None or not set(extras) <= have or not works("-c", ""):
        try:
            with set_up_lock():
                have = installed_extras(wanted_print)
                if have is None or not set(extras) <= have or not works("-c", ""):
                    make_venv()
                    everything = sorted({*extras, *(have or ())})
                    install(everything)
                    make_importable()
                    STAMP.write_text(
                        json.dumps({"fingerprint": wanted_print, "extras": everything})
                    )
        except PermissionError as error:
            give_up(f"This clone must be writable to hold its .venv: {error}")
    print(PYTHON)


if __name__ == "__main__":
    main(sys.argv[1:])
