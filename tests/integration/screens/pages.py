"""Looking at rendered pages as a browser under the strict policy would."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

_OUTSIDE = re.compile(r"(?:https?:)?//[^\s\"'<>]+")
#: a name of the SVG language, not an address that anything asks
_NAMESPACE = "http://www.w3.org/2000/svg"


class _Faults(HTMLParser):
    """Whatever the policy would block, and addresses that lead outside."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag == "style" or (tag == "script" and not named.get("src")):
            self.found.append(f"inline <{tag}>")
        for name, value in attrs:
            if name == "style" or name.startswith(("on", "hx-on")):
                self.found.append(f"<{tag} {name}=…>")
            if name == "id" and value:
                self.ids.append(value)
            for address in _OUTSIDE.findall(value or ""):
                if address != _NAMESPACE:
                    self.found.append(f"<{tag} {name}={address}>")


def faults_of(html: str) -> list[str]:
    """Inline code or style, addresses outside, ids used twice; [] for a clean page."""
    parser = _Faults()
    parser.feed(html)
    twice = {one for one in parser.ids if parser.ids.count(one) > 1}
    return parser.found + [f"id twice: {one}" for one in sorted(twice)]


def text_of(response: Any) -> str:
    """The page's text with single spaces."""
    bare = re.sub(r"<[^>]+>", " ", response.content.decode())
    return re.sub(r"\s+", " ", bare)


class _Fields(HTMLParser):
    """What a browser would send of the page's form for a row, untouched."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: dict[str, list[str]] = {}
        self._inside = False
        self._select, self._several = "", False
        self._area = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag == "form":
            self._inside = (named.get("id") or "").endswith("_form")
        if not self._inside:
            return
        name, value = named.get("name") or "", named.get("value") or ""
        if tag == "input" and name and named.get("type") != "submit":
            if named.get("type") in ("checkbox", "radio"):
                if "checked" in named:
                    self.sent.setdefault(name, []).append(value or "on")
            else:
                self.sent.setdefault(name, []).append(value)
        elif tag == "select":
            self._select, self._several = name, "multiple" in named
        elif tag == "option" and self._select:
            if "selected" in named:
                chosen = self.sent.get(self._select, []) if self._several else []
                self.sent[self._select] = [*chosen, value]
            elif not self._several:
                # a browser sends the first where none is chosen
                self.sent.setdefault(self._select, [value])
        elif tag == "textarea":
            self._area = name
            self.sent[name] = [""]

    def handle_data(self, data: str) -> None:
        if self._area:
            self.sent[self._area][0] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._inside = False
        if tag == "select":
            self._select = ""
        if tag == "textarea":
            self._area = ""


def form_of(response: Any, **typed: Any) -> dict[str, Any]:
    """The form of a row as the page shows it, with what a person typed into it; None unticks."""
    parser = _Fields()
    parser.feed(response.content.decode())
    return {name: value for name, value in (parser.sent | typed).items() if value is not None}
