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
