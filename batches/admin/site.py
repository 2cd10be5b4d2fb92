"""The admin site whose front page and addresses are the console's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib.admin import AdminSite
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, URLResolver
from django.utils.translation import gettext_lazy as _l

from .nav import nav_for

View = Callable[..., HttpResponseBase]


class ConsoleSite(AdminSite):
    site_header = _l("批量作业控制台")
    site_title = _l("批量作业控制台")
    index_title = _l("总览")
    site_url = None
    enable_nav_sidebar = False

    def get_urls(self) -> list[URLPattern | URLResolver]:
        from .urls import screens

        return [*screens(self.admin_view), *super().get_urls()]

    def index(  # type: ignore[override]
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponseBase:
        from .overview import overview
        from .verbs import viewer_only

        return viewer_only(overview)(request)

    def admin_view(self, view: View, cacheable: bool = False) -> View:  # type: ignore[override]
        """A polled fragment of a lost session reloads the page, which then asks to sign in.

        Redirected as usual, the fragment's place would be taken by the login page.
        """
        guarded = super().admin_view(view, cacheable)

        def console_view(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if request.headers.get("HX-Request") == "true" and not self.has_permission(request):
                return HttpResponse(status=204, headers={"HX-Refresh": "true"})
            return guarded(request, *args, **kwargs)

        console_view.csrf_exempt = getattr(guarded, "csrf_exempt", False)  # type: ignore[attr-defined]
        return console_view

    def password_change(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> TemplateResponse:
        """One's own password; that it was changed is in the audit."""
        from batches.services.people import recording_user

        from .verbs import actor_of

        actor = actor_of(request)
        with recording_user(user_id=actor.pk, actor=actor):
            return super().password_change(request, extra_context)

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        context = super().each_context(request)
        context["environment_label"] = settings.ENVIRONMENT_LABEL
        if context["has_permission"]:
            context["nav"] = nav_for(request)
        return context
