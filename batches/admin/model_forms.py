"""Forms of Django's own for gateways and accounts; state columns are not among their fields."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext_lazy as _l

from batches.gateways.registry import gateway_kinds
from batches.models import Account, Gateway

if TYPE_CHECKING:
    _GatewayForm = forms.ModelForm[Gateway]
    _GatewayAdmin = admin.ModelAdmin[Gateway]
    _AccountAdmin = admin.ModelAdmin[Account]
else:
    _GatewayForm, _GatewayAdmin, _AccountAdmin = forms.ModelForm, admin.ModelAdmin, admin.ModelAdmin


class GatewayForm(_GatewayForm):
    """The token can be set, never read."""

    kind = forms.ChoiceField(label=_l("类型"), choices=[])
    new_token = forms.CharField(
        label=_l("令牌"),
        required=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=_l("只能写入，不会显示。留空表示不改。"),
    )

    class Meta:
        model = Gateway
        fields = (
            "name",
            "kind",
            "base_url",
            "dialect",
            "rate_limit_per_min",
            "max_concurrent",
            "timeout_seconds",
            "options",
            "is_active",
        )
        # plain: Django's own shows the address as a link, and nothing here leads outside
        widgets = {"base_url": forms.URLInput(attrs={"size": 60})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["kind"].choices = [(kind, kind) for kind in gateway_kinds()]  # type: ignore[attr-defined]

    def save(self, commit: bool = True) -> Gateway:
        if token := self.cleaned_data.get("new_token"):
            self.instance.token = token
        if not self.instance.callback_secret:
            self.instance.callback_secret = secrets.token_urlsafe(24)
        return super().save(commit)


@admin.register(Gateway)
class GatewayAdmin(_GatewayAdmin):
    form = GatewayForm
    list_display = ("__str__", "base_url", "dialect", "timeout_seconds", "is_active")
    search_fields = ("name", "base_url")
    ordering = ("name", "id")
    list_per_page = 50
    show_full_result_count = False
    readonly_fields = ("callback_path", "created_at")
    actions = None
    fieldsets = (
        (None, {"fields": ("name", "kind", "base_url", "dialect", "new_token", "is_active")}),
        (_l("总限制"), {"fields": ("rate_limit_per_min", "max_concurrent")}),
        (_l("细节"), {"fields": ("timeout_seconds", "options", "callback_path", "created_at")}),
    )

    @admin.display(description=_l("回调地址"))
    def callback_path(self, gateway: Gateway) -> str:
        return f"/callbacks/{gateway.callback_secret}/" if gateway.pk else "—"


@admin.register(Account)
class AccountAdmin(_AccountAdmin):
    """Adding and changing; the list is the console's own."""

    fields = (
        "gateway",
        "guid",
        "name",
        "total_rate_per_min",
        "online_reserve_per_min",
        "max_inflight",
    )
    list_select_related = ("gateway",)
    search_fields = ("guid", "name")
    actions = None

    def save_model(self, request: HttpRequest, obj: Account, form: Any, change: bool) -> None:
        """Writes what the person changed and nothing else: lanes write the row all the while."""
        obj.save(update_fields=form.changed_data if change else None)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return HttpResponseRedirect(reverse("admin:accounts"))
