"""The documentation agrees with the code: links, commands, options, paths, generated pages."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from django.core.management import call_command, get_commands, load_command_class
from django.core.management.base import BaseCommand, CommandError

from batches.domain.alerts import ALERTS
from batches.domain.states import PauseReason

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_LINK = re.compile(r"(?<!\\)\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]+`")
_COMMAND = re.compile(r"manage\.py ([a-z_]+)")


def tracked_files() -> list[Path]:
    """What belongs to the project: what git tracks, or everything of an export without git."""
    if (ROOT / ".git").exists():
        done = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True
        )
        return [ROOT / name for name in os.fsdecode(done.stdout).split("\0") if name]
    skipped = {".git", ".venv", "var"}
    return [
        path
        for path in ROOT.rglob("*")
        if path.is_file() and not skipped & set(path.relative_to(ROOT).parts)
    ]


def pages() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])


def page_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(page: Path) -> str:
    """The page without code, in which brackets are no links."""
    return _CODE.sub("", _FENCE.sub("", page.read_text(encoding="utf-8")))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower().replace("`", "")).replace(" ", "-")
        for heading in headings
    }


def broken_links(page: Path) -> Iterator[str]:
    for target in _LINK.findall(prose(page)):
        parts = urlsplit(target)
        if parts.scheme:
            continue
        file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        there = file.is_relative_to(ROOT) and file.exists()
        if not there or (parts.fragment and parts.fragment not in anchors(file)):
            yield target


def our_commands() -> dict[str, BaseCommand]:
    return {
        name: load_command_class(app, name) if isinstance(app, str) else app
        for name, app in get_commands().items()
        if app == "batches" and name != "makemessages"
    }


def options_of(command: BaseCommand) -> set[str]:
    """The options of a command's own; those of every Django command left out."""
    plain = BaseCommand().create_parser("manage.py", "x")
    common = {option for action in plain._actions for option in action.option_strings}
    parser = command.create_parser("manage.py", "x")
    return {
        option
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--") and option not in common
    }


@pytest.mark.parametrize("page", pages(), ids=page_id)
def test_links_of_page_lead_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


def test_broken_links_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "# One heading\n[a](page.md) [b](#one-heading) [c](https://example.com/x)\n"
        "[d](gone.md) [e](#other) [f](../out.md) ![g](no.png)\n`[h](code.md)`\n"
    )
    assert list(broken_links(page)) == ["gone.md", "#other", "../out.md", "no.png"]


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        for target in _LINK.findall(prose(page)):
            parts = urlsplit(target)
            if not parts.scheme and parts.path:
                waiting.append((page.parent / unquote(parts.path)).resolve())
    assert [page_id(page) for page in pages() if page not in seen] == []


@pytest.mark.parametrize("page", pages(), ids=page_id)
def test_commands_named_on_page_exist(page: Path) -> None:
    named = set(_COMMAND.findall(page.read_text(encoding="utf-8")))
    assert named - set(get_commands()) == set()


def test_every_command_is_described_with_its_options_and_no_others() -> None:
    text = (DOCS / "commands.md").read_text(encoding="utf-8")
    sections = dict(
        re.findall(r"^## `manage\.py ([a-z_]+)`\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    )
    described = {
        name: set(re.findall(r"^\| `(--[a-z-]+)", section, re.MULTILINE))
        for name, section in sections.items()
    }
    assert described == {name: options_of(command) for name, command in our_commands().items()}


@pytest.mark.parametrize("page", pages(), ids=page_id)
def test_files_named_on_page_exist(page: Path) -> None:
    """A path in code marks, from the root of the project, is a file or folder of it."""
    tops = "batches|wecom_ops|tests|docs|bin|benchmarks|examples|templates"
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    named = re.findall(rf"`((?:{tops})/[\w./*-]*)`", text)
    assert [name for name in named if not list(ROOT.glob(name.rstrip("/")))] == []


def test_states_page_is_fresh() -> None:
    call_command("docs_states", "--check")


def test_states_page_that_is_stale_is_refused(tmp_path: Path, settings: object) -> None:
    settings.BASE_DIR = tmp_path  # type: ignore[attr-defined]
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "states.md").write_text("# States\n")
    with pytest.raises(CommandError, match="not fresh"):
        call_command("docs_states", "--check")
    assert (tmp_path / "docs" / "states.md").read_text() == "# States\n"


def test_decisions_are_numbered_without_gap_and_say_what_was_decided() -> None:
    files = sorted((DOCS / "adr").glob("[0-9]*.md"))
    numbers = [int(file.name[:4]) for file in files]
    assert numbers == list(range(1, len(files) + 1))
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert text.startswith(f"# {file.name[:4]} "), file.name
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == [
            "Context",
            "Decision",
            "Consequences",
        ], file.name


def test_changelog_begins_with_what_is_unreleased() -> None:
    headings = re.findall(
        r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert headings[0] == "Unreleased"


def test_words_of_the_glossary_are_those_on_the_screens() -> None:
    sources = [*(ROOT / "batches").rglob("*.py"), *(ROOT / "templates").rglob("*.html")]
    shown = "".join(path.read_text(encoding="utf-8") for path in sources)
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\| [a-z][^|]* \| ([^|]+) \|", text, re.MULTILINE)
    assert {"作业", "存疑"} <= set(words)
    assert [word for word in words if word not in {"–", "word"} and word not in shown] == []


def foreign_words(text: str) -> list[str]:
    """Addresses of package indexes, and folders of one person's or this very machine."""
    indexes = ("pypi" + ".org", "python" + "hosted.org", "index" + "-url", "/simple" + "/")
    found = [word for word in indexes if word in text]
    found += re.findall(r"(?<![\w.$~}-])/(?:home|Users|root|work)/[\w.-]+", text)
    for folder in {str(ROOT), sys.prefix, str(Path.home())} - {"/", "/usr", "/usr/local"}:
        if len(folder) > 5 and re.search(rf"(?<![\w./-]){re.escape(folder)}(?![\w-])", text):
            found.append(folder)
    return found


def test_no_file_names_a_machine_or_a_package_index() -> None:
    found = {}
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue  # not text, or deleted and not yet committed
        if path != Path(__file__) and (words := foreign_words(text)):
            found[page_id(path)] = words
    assert found == {}


def test_foreign_words_are_found() -> None:
    assert foreign_words("see /ho" + "me/somebody/x and " + "pypi" + ".org") != []
    assert foreign_words(f"run {ROOT}/bin/demo") != []
    assert foreign_words("`/admin/` /var/tmp ~/work/x $HOME/home/x") == []


def coded_texts(path: Path) -> set[str]:
    """The codes of a module's texts: `"code", N_("…")` in a call, a tuple or a dictionary."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(args=[ast.Constant(value=str(code)), text, *_]):
                pass
            case ast.Tuple(elts=[ast.Constant(value=str(code)), text]):
                pass
            case ast.Dict(keys=[ast.Constant(value=str(_)), *_]):
                for key, text in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and ast.unparse(text).startswith("N_("):
                        found.add(key.value)
                continue
            case _:
                continue
        if "N_(" in ast.unparse(text):
            found.add(code)
    return found


def test_every_reason_why_a_job_does_not_move_is_in_the_runbook() -> None:
    found = {reason.value for reason in PauseReason}
    for path in (ROOT / "batches" / "selectors").glob("why*.py"):
        found |= coded_texts(path)
    assert {"stuck", "no_worker", "shards_paused"} <= found
    text = (DOCS / "operations.md").read_text(encoding="utf-8")
    assert {code for code in found if f"`{code}`" not in text} == set()


def test_every_finding_of_verify_is_in_the_runbook() -> None:
    found = coded_texts(ROOT / "batches" / "selectors" / "verify.py")
    assert {"over_budget", "sent_twice", "forgotten", "over_rate"} <= found
    text = (DOCS / "operations.md").read_text(encoding="utf-8")
    assert {code for code in found if f"`{code}`" not in text} == set()


def test_every_alert_is_in_the_runbook() -> None:
    text = (DOCS / "operations.md").read_text(encoding="utf-8")
    assert {kind for kind in ALERTS if f"`{kind}`" not in text} == set()
