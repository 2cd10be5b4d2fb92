"""Forms of Django's own for gateways and accounts; state columns are not among their fields."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from batches.domain.addresses import normal_url
from batches.gateways.base import GatewayConfig
from batches.gateways.registry import gateway_kinds, get_gateway
from batches.models import Account, Gateway
from batches.services.settings import (
    add_account,
    add_gateway,
    change_account,
    change_gateway,
    delete_account,
    delete_gateway,
)

from .merging import MergedForm
from .verbs import actor_of

if TYPE_CHECKING:
    _GatewayAdmin = admin.ModelAdmin[Gateway]
    _AccountAdmin = admin.ModelAdmin[Account]
else:
    _GatewayAdmin, _AccountAdmin = admin.ModelAdmin, admin.ModelAdmin


#: where the form shows what is wrong, by the start of the problem's code
_FIELD_OF = {
    "gateway_option": "options",
    "gateway_url": "base_url",
    "gateway_dialect": "dialect",
    "gateway_token": "new_token",
    "gateway_kind": "kind",
}


class GatewayForm(MergedForm):
    """The token can be set, never read."""

    family = "gateway"

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
        if _token_is_sealed(self.instance):
            self.fields["new_token"].help_text = _l("令牌无法解密，请重新填写。")

    def clean_base_url(self) -> str:
        return normal_url(self.cleaned_data["base_url"])

    def clean_options(self) -> dict[str, Any]:
        options = self.cleaned_data["options"]
        if options is None:
            return {}
        if not isinstance(options, dict):
            raise forms.ValidationError(_("选项应为 JSON 对象，例如 {}。"))
        return options

    def clean(self) -> None:
        """What the adapter itself finds wrong, each at its field."""
        super().clean()
        if self.errors:
            return
        given = self.cleaned_data
        config = GatewayConfig(
            kind=given["kind"],
            base_url=given["base_url"],
            dialect=given["dialect"],
            token=given["new_token"] or self.instance.token,
            options=given["options"],
        )
        for problem in get_gateway(config.kind).validate(config):
            field = next(
                (at for code, at in _FIELD_OF.items() if problem.code.startswith(code)), None
            )
            self.add_error(field, problem.translated(_))

    def save(self, commit: bool = True) -> Gateway:
        if token := self.cleaned_data.get("new_token"):
            self.instance.token = token
        if self.instance._state.adding:  # noqa: SLF001 - Django's documented model API
            self.instance.callback_secret = secrets.token_urlsafe(24)
        saved: Gateway = super().save(commit)
        return saved


def _token_is_sealed(gateway: Gateway) -> bool:
    """There is a token, and no key of this installation opens it."""
    if gateway._state.adding or gateway.token:  # noqa: SLF001
        return False
    return Gateway.objects.filter(pk=gateway.pk).exclude(token="").exists()


@admin.register(Gateway)
class GatewayAdmin(_GatewayAdmin):
    form = GatewayForm
    list_display = ("__str__", "base_url", "dialect", "timeout_seconds", "is_active")
    search_fields = ("name", "base_url")
    ordering = ("name", "id")
    list_per_page = 50
    readonly_fields = ("callback_path", "created_at")
    actions = None
    fieldsets = (
        (None, {"fields": ("name", "kind", "base_url", "dialect", "new_token", "is_active")}),
        (_l("总限制"), {"fields": ("rate_limit_per_min", "max_concurrent")}),
        (_l("细节"), {"fields": ("timeout_seconds", "options", "callback_path", "created_at")}),
    )

    def get_fieldsets(self, request: HttpRequest, obj: Gateway | None = None) -> Any:
        """A gateway that is being added was created at no time yet."""
        shown = super().get_fieldsets(request, obj)
        if obj is not None:
            return shown
        return [
            (title, part | {"fields": [name for name in part["fields"] if name != "created_at"]})
            for title, part in shown
        ]

    def save_model(self, request: HttpRequest, obj: Gateway, form: Any, change: bool) -> None:
        """Writes what was changed alone: a token that no key opens reads as none, and stays."""
        actor = actor_of(request)
        if not change:
            add_gateway(gateway=obj, actor=actor)
            return
        changed = ["token" if name == "new_token" else name for name in form.changed_data]
        changes = {name: getattr(obj, name) for name in changed}
        change_gateway(gateway_id=obj.pk, actor=actor, changes=changes)

    def delete_model(self, request: HttpRequest, obj: Gateway) -> None:
        delete_gateway(gateway=obj, actor=actor_of(request))

    @admin.display(description=_l("回调地址"))
    def callback_path(self, gateway: Gateway) -> str:
        """Not the address: nothing answers there yet."""
        return _("本版本还不接收回调，网关上不必设置回调地址。")


class AccountForm(MergedForm):
    family = "account"

    class Meta:
        model = Account
        fields = (
            "gateway",
            "guid",
            "name",
            "total_rate_per_min",
            "online_reserve_per_min",
            "max_inflight",
        )


@admin.register(Account)
class AccountAdmin(_AccountAdmin):
    """Adding and changing; the list is the console's own."""

    form = AccountForm
    fields = AccountForm.Meta.fields
    list_select_related = ("gateway",)
    search_fields = ("guid", "name")
    actions = None

    def save_model(self, request: HttpRequest, obj: Account, form: Any, change: bool) -> None:
        """Writes what the person changed and nothing else, by what their page had shown."""
        actor = actor_of(request)
        if not change:
            add_account(account=obj, actor=actor)
            return
        changes = {name: getattr(obj, name) for name in form.changed_data}
        change_account(account_id=obj.pk, actor=actor, changes=changes)

    def delete_model(self, request: HttpRequest, obj: Account) -> None:
        delete_account(account=obj, actor=actor_of(request))

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return HttpResponseRedirect(reverse("admin:accounts"))
