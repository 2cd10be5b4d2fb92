"""Response headers and the language of a request."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import translation
from django.utils.deprecation import MiddlewareMixin

CONTENT_SECURITY_POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'self'; "
    "form-action 'self'; frame-ancestors 'none'"
)


class ContentSecurityPolicyMiddleware:
    """Puts the one strict policy on every response; no view may loosen it."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        response.headers["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
        return response


class ChosenLocaleMiddleware(MiddlewareMixin):
    """Chinese unless the person switched: the browser's Accept-Language is not asked.

    Operators share screenshots and runbooks, so a page must not depend on whose browser shows it.
    """

    def process_request(self, request: HttpRequest) -> None:
        chosen = request.COOKIES.get(settings.LANGUAGE_COOKIE_NAME, "")
        known = {code for code, _name in settings.LANGUAGES}
        translation.activate(chosen if chosen in known else settings.LANGUAGE_CODE)
        request.LANGUAGE_CODE = translation.get_language() or settings.LANGUAGE_CODE

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        response.headers.setdefault("Content-Language", translation.get_language() or "")
        return response
