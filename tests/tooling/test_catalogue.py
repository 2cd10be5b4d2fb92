"""The English catalogue: complete, true to its sources, compiled, and nothing left unmarked."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import polib
import pytest

ROOT = Path(__file__).resolve().parents[2]
MESSAGES = Path("locale/en/LC_MESSAGES")
#: Chinese letters and the punctuation that belongs to them
CHINESE = re.compile(r"[\u3000-\u303f\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]")
PLACEHOLDER = re.compile(r"%(?:\(\w+\))?[sd%]")

Key = tuple[str | None, str]

#: Chinese that is no text for the reader: names of columns in people's files, separators that
#: people type, what the simulated gateway answers, the data of the demo
NOT_FOR_READERS: dict[str, set[str] | None] = {
    "batches/simulator": None,
    "batches/domain/columns.py": None,
    "wecom_ops/local": None,
    "batches/services/account_file.py": {"账号ID", "账号名称"},
    "batches/actions/tag_customers.py": {r"[|｜;；,，、\s\u200b\ufeff]+"},
    "batches/admin/limit_fields.py": {r"[,，、;；\s]+"},
    "batches/domain/rendering.py": {r"｛([^{}｛｝]*)｝", " \t\r\n\x0b\x0c\xa0\u3000\ufeff\u200b"},
    "batches/management/commands/create_job.py": {"，"},
    # the group robot's markdown; it speaks the installation's language
    "batches/engine/alert_text.py": {"［］（）＜＞｀＊＿＃  ", "【", "】", "：", "（", "）"},
    # the language's own name is the same in every language
    "wecom_ops/settings.py": {"简体中文"},
}


def _po(root: Path = ROOT) -> polib.POFile:
    return polib.pofile(str(root / MESSAGES / "django.po"))


def _texts(entry: polib.POEntry) -> list[str]:
    return list(entry.msgstr_plural.values()) if entry.msgid_plural else [entry.msgstr]


def test_catalogue_has_a_finished_text_for_every_entry() -> None:
    for entry in _po():
        assert not entry.obsolete, entry.msgid
        assert not entry.fuzzy, entry.msgid
        assert all(_texts(entry)), entry.msgid
    assert len(_po()) > 800


def test_placeholders_are_those_of_the_source() -> None:
    for entry in _po():
        wanted = sorted(PLACEHOLDER.findall(entry.msgid))
        for text in _texts(entry):
            assert sorted(PLACEHOLDER.findall(text)) == wanted, (entry.msgid, text)


def test_english_texts_contain_no_chinese() -> None:
    found = [text for entry in _po() for text in _texts(entry) if CHINESE.search(text)]
    assert found == []


def test_english_has_a_singular_and_a_plural() -> None:
    po = _po()
    assert po.metadata["Plural-Forms"] == "nplurals=2; plural=(n != 1);"
    counted = [entry for entry in po if entry.msgid_plural]
    assert counted
    for entry in counted:
        assert set(entry.msgstr_plural) == {0, 1}
        assert entry.msgstr_plural[0] != entry.msgstr_plural[1], entry.msgid


def test_compiled_catalogue_is_that_of_the_texts() -> None:
    compiled = polib.mofile(str(ROOT / MESSAGES / "django.mo"))
    assert _contents(compiled) == _contents(_po())


def _contents(catalogue: polib.POFile | polib.MOFile) -> dict[Key, list[str]]:
    return {(entry.msgctxt, entry.msgid): _texts(entry) for entry in catalogue if entry.msgid}


def test_makemessages_finds_nothing_new(tmp_path: Path) -> None:
    """The sources as they are now against the committed catalogue."""
    if shutil.which("xgettext") is None:
        why = "gettext is not installed"
        if os.environ.get("CI") or os.environ.get("REQUIRE_BROWSER"):
            pytest.fail(f"{why}, and continuous integration must have it")
        pytest.skip(why)
    for name in ("batches", "wecom_ops", "templates", "locale"):
        shutil.copytree(
            ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "static")
        )
    shutil.copy(ROOT / "manage.py", tmp_path)
    done = subprocess.run(
        [sys.executable, "manage.py", "makemessages", "-l", "en", "--no-location"],
        cwd=tmp_path,
        env=os.environ | {"DEBUG": "1", "DJANGO_SETTINGS_MODULE": "wecom_ops.settings"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    before, after = _keys(_po()), _keys(_po(tmp_path))
    assert after - before == set(), "not in the catalogue: run makemessages and translate"
    assert before - after == set(), "no longer used: run makemessages"


def _keys(po: polib.POFile) -> set[tuple[str | None, str, str]]:
    return {(e.msgctxt, e.msgid, e.msgid_plural) for e in po if not e.obsolete}


def test_chinese_in_code_is_in_the_catalogue() -> None:
    known = {text for entry in _po() for text in (entry.msgid, entry.msgid_plural)}
    unknown = [
        f"{path}:{line}: {text}"
        for path in sorted(_sources())
        for line, text in _literals(ROOT / path)
        if CHINESE.search(text) and text not in known and text not in _excused(path)
    ]
    assert unknown == []


def _sources() -> list[str]:
    found = [*(ROOT / "batches").rglob("*.py"), *(ROOT / "wecom_ops").rglob("*.py")]
    names = [path.relative_to(ROOT).as_posix() for path in found if "migrations" not in path.parts]
    return [
        name
        for name in names
        if not any(
            excused is None and (name == place or name.startswith(f"{place}/"))
            for place, excused in NOT_FOR_READERS.items()
        )
    ]


def _excused(path: str) -> set[str]:
    return NOT_FOR_READERS.get(path) or set()


def _literals(path: Path) -> list[tuple[int, str]]:
    """Every string of a module but its docstrings."""
    tree = ast.parse(path.read_text())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docstrings
    ]


#: what a template gives to the catalogue, and what nobody sees
_HANDLED = re.compile(
    r"{%\s*comment.*?endcomment\s*%}|{#.*?#}"
    r"|{%\s*blocktrans(?:late)?\b.*?endblocktrans(?:late)?\s*%}"
    r"|{%\s*trans(?:late)?\b.*?%}",
    re.DOTALL,
)


def test_chinese_in_templates_and_scripts_is_in_the_catalogue() -> None:
    places = [ROOT / "templates", ROOT / "batches"]
    files = [path for place in places for end in ("html", "js") for path in place.rglob(f"*.{end}")]
    assert len(files) > 50
    bare = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in files
        for line in _HANDLED.sub("", path.read_text()).splitlines()
        if CHINESE.search(line) and 'lang="zh-hans"' not in line
    ]
    assert bare == []
