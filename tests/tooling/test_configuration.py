"""Settings as an installation sees them: documented, strict, safe in production."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import Client

from wecom_ops import env

ROOT = Path(__file__).resolve().parents[2]
PRODUCTION = {
    "SECRET_KEY": "k" * 25 + "0123456789abcdefghijklmnopqrstuvwxyz",
    "ALLOWED_HOSTS": "console.example.com",
}


def run_manage(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """manage.py with these variables and none of the caller's own settings."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in {"PATH", "HOME", "DATABASE_URL", "REDIS_URL", "LANG", "PYTHONPATH"}
    }
    return subprocess.run(
        [sys.executable, ROOT / "manage.py", *arguments],
        env=kept | variables,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def names_read_by_settings() -> set[str]:
    tree = ast.parse((ROOT / "wecom_ops" / "settings.py").read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "env"
        ):
            name = node.args[0]
            assert isinstance(name, ast.Constant), (
                "name variables literally, so that they are found"
            )
            found.add(str(name.value))
    return found


def test_configuration_document_names_every_variable_and_no_other() -> None:
    document = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `([A-Z_]+)` \|", document, flags=re.MULTILINE))
    read = names_read_by_settings()
    assert {"SECRET_KEY", "DATABASE_URL", "TIME_ZONE"} <= read
    assert documented == read | {"FORWARDED_ALLOW_IPS"}  # gunicorn's own


def test_dependency_document_names_every_direct_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        lines += extra
    wanted = {re.split(r"[^A-Za-z0-9-]", line)[0].lower() for line in lines}
    document = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    documented = {
        name.lower() for name in re.findall(r"^\| `([A-Za-z0-9-]+)` \|", document, re.MULTILINE)
    }
    assert documented == wanted


def test_constraints_pin_every_direct_dependency_and_name_no_index() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        lines += extra
    wanted = {re.split(r"[^A-Za-z0-9-]", line)[0].lower() for line in lines}
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pinned = {
        line.split("==")[0].lower().replace("_", "-") for line in text.splitlines() if "==" in line
    }
    assert wanted <= pinned
    assert "://" not in text
    assert "-" not in {line[:1] for line in text.splitlines()}


def test_check_deploy_with_production_variables_is_clean() -> None:
    done = run_manage("check", "--deploy", "--fail-level", "WARNING", **PRODUCTION)
    assert done.returncode == 0, done.stderr
    assert "no issues" in done.stdout


def test_start_without_secret_key_is_refused() -> None:
    done = run_manage("check")
    assert done.returncode != 0
    assert "SECRET_KEY must be set" in done.stderr


def test_start_with_debug_needs_no_secret_key() -> None:
    assert run_manage("check", DEBUG="on").returncode == 0


@pytest.mark.parametrize("raw", ["ja", "2", "yes please"])
def test_flag_unclear_is_refused(monkeypatch: pytest.MonkeyPatch, raw: str) -> None:
    monkeypatch.setenv("SOME_FLAG", raw)
    with pytest.raises(ImproperlyConfigured, match="SOME_FLAG"):
        env.flag("SOME_FLAG", default=True)


@pytest.mark.parametrize("raw", ["1.5", "many", "0", "-3"])
def test_number_unusable_is_refused(monkeypatch: pytest.MonkeyPatch, raw: str) -> None:
    monkeypatch.setenv("SOME_NUMBER", raw)
    with pytest.raises(ImproperlyConfigured, match="SOME_NUMBER"):
        env.number("SOME_NUMBER", 5)


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("LANE_LEASE_SECONDS", "3"),
        ("LANE_LEASE_SECONDS", "61"),
        ("LANE_TURN_SECONDS", "4"),
        ("LANE_TURN_SECONDS", "301"),
    ],
)
def test_start_with_a_lane_that_could_not_live_is_refused(name: str, raw: str) -> None:
    done = run_manage("check", DEBUG="on", **{name: raw})
    assert done.returncode != 0
    assert f"{name} must be at" in done.stderr


def test_words_blank_entries_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_WORDS", " a.example , ,b.example,")
    assert env.words("SOME_WORDS") == ["a.example", "b.example"]


@pytest.mark.django_db
def test_login_page_ignores_the_browsers_language(client: Client) -> None:
    page = client.get("/admin/login/", headers={"accept-language": "en"})
    assert page.headers["Content-Language"] == "zh-hans"
    assert '<html lang="zh-hans"' in page.content.decode()


@pytest.mark.django_db
def test_language_switch_sets_english_until_switched_back(client: Client) -> None:
    client.post("/i18n/setlang/", {"language": "en", "next": "/admin/login/"})
    page = client.get("/admin/login/", headers={"accept-language": "zh-CN"})
    assert page.headers["Content-Language"] == "en"
    assert '<html lang="en"' in page.content.decode()
    client.cookies["django_language"] = "xx"
    assert client.get("/admin/login/").headers["Content-Language"] == "zh-hans"


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/admin/login/", "/healthz", "/no-such-page", "/"])
def test_every_response_carries_the_strict_policy(client: Client, path: str) -> None:
    policy = client.get(path).headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'self'")
    assert "unsafe" not in policy
