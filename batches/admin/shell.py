"""What every screen shares: rendering inside the console's frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.functional import Promise

Crumb = tuple[str, str | Promise]


def page(
    request: HttpRequest,
    template: str,
    context: Mapping[str, Any],
    *,
    title: str | Promise,
    crumbs: Sequence[Crumb] = (),
    status: int = 200,
) -> HttpResponse:
    """A whole page in the console's frame; `crumbs` are (address, text) above the title."""
    frame = admin.site.each_context(request)
    return render(
        request,
        template,
        {**frame, "title": title, "crumbs": crumbs, **context},
        status=status,
    )


def is_fragment(request: HttpRequest) -> bool:
    """htmx asks for a part of the page."""
    return request.headers.get("HX-Request") == "true"


def number(text: str | None) -> int | None:
    """A row id from the address; None for anything else, so that no address is an error."""
    if text and text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    return None
