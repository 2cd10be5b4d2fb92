"""Users and roles: who may sign in, and what each role may do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.forms import UserChangeForm
from django.contrib.auth.models import Group, Permission, User
from django.db.models import ManyToManyField, Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _l

from batches.models import Job
from batches.selectors.people import permission_words
from batches.services.people import (
    delete_person_or_role,
    record_added,
    recording_role,
    recording_user,
)

from .merging import MergedForm
from .shell import number
from .verbs import actor_of

if TYPE_CHECKING:
    _PermissionField = forms.ModelMultipleChoiceField[Permission]
    _UserAdmin = UserAdmin[User]
    _UserForm = UserChangeForm[User]
else:
    _PermissionField, _UserAdmin = forms.ModelMultipleChoiceField, UserAdmin
    _UserForm = UserChangeForm


def permission_label(permission: Permission) -> str:
    """A permission in words; Django keeps its own names for them in English."""
    named = f"{permission.content_type.app_label}.{permission.codename}"
    words = permission_words(named)
    return gettext(permission.name) if words == named else words


class PermissionField(_PermissionField):
    """Permissions as check boxes, in words."""

    def label_from_instance(self, obj: Permission) -> str:
        return permission_label(obj)


def offered_permissions() -> QuerySet[Permission]:
    """Those that change something in the console; a role keeps any others that it has."""
    ours = Q(codename__in=["view_job", *dict(Job._meta.permissions)])  # noqa: SLF001
    managed = Q(content_type__model__in=("gateway", "account"))
    people = Q(content_type__app_label="auth", content_type__model__in=("user", "group"))
    found = Permission.objects.filter(
        Q(content_type__app_label="batches") & (ours | managed) | people
    )
    return found.select_related("content_type").order_by("-content_type__model", "id")


def permissions_of(user: User) -> QuerySet[Permission]:
    """What a person was given, by roles or by itself; of somebody switched off, too."""
    return Permission.objects.filter(Q(group__user=user) | Q(user=user))


def permissions_to_give(giver: User) -> QuerySet[Permission]:
    """Nobody gives what they do not have."""
    if giver.is_superuser:
        return offered_permissions()
    return offered_permissions().filter(pk__in=permissions_of(giver).values("pk"))


def roles_to_give(giver: User) -> QuerySet[Group]:
    """Roles that do not allow more than the giver may do."""
    if giver.is_superuser:
        return Group.objects.all()
    beyond = Permission.objects.exclude(pk__in=permissions_of(giver).values("pk"))
    return Group.objects.exclude(permissions__in=beyond)


def may_manage(manager: User, user: User) -> bool:
    """Whoever can change a person (their password above all) can act as that person."""
    if manager.is_superuser:
        return True
    held = permissions_of(manager).values("pk")
    return not user.is_superuser and not permissions_of(user).exclude(pk__in=held).exists()


class _PlainDeletion:
    """What goes when one is deleted; Django would list the rows of its link tables as well."""

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        _listed, _counts, needed, protected = super().get_deleted_objects(objs, request)  # type: ignore[misc]
        counts = {self.model._meta.verbose_name_plural: len(objs)}  # type: ignore[attr-defined]  # noqa: SLF001
        return [str(one) for one in objs], counts, needed, protected


class _Audited:
    """A line in the audit for one that is made or deleted; what is changed tells it itself."""

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)  # type: ignore[misc]
        if not change:
            record_added(row=form.instance, actor=actor_of(request))

    def delete_model(self, request: HttpRequest, obj: User | Group) -> None:
        delete_person_or_role(row=obj, actor=actor_of(request))


class RoleForm(MergedForm):
    family = "role"

    class Meta:
        model = Group
        fields = ("name", "permissions")


class RoleAdmin(_Audited, _PlainDeletion, GroupAdmin):
    """A role is a group with the console's permissions."""

    form = RoleForm
    actions = None
    filter_horizontal = ()

    def change_view(self, request: HttpRequest, object_id: str, *args: Any, **kwargs: Any) -> Any:
        shown = partial(super().change_view, request, object_id, *args, **kwargs)
        if request.method != "POST" or (role_id := number(object_id)) is None:
            return shown()
        with recording_role(role_id=role_id, actor=actor_of(request)):
            return shown()

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        offered = permissions_to_give(actor_of(request)).values("pk")
        kept = list(form.instance.permissions.exclude(pk__in=offered))
        super().save_related(request, form, formsets, change)
        form.instance.permissions.add(*kept)

    def formfield_for_manytomany(
        self, db_field: ManyToManyField[Any, Any], request: HttpRequest | None = None, **kwargs: Any
    ) -> Any:
        if db_field.name == "permissions" and request is not None:
            return PermissionField(
                queryset=permissions_to_give(actor_of(request)),
                widget=forms.CheckboxSelectMultiple,
                required=False,
                label=_l("权限"),
            )
        return super().formfield_for_manytomany(db_field, request, **kwargs)


class PersonForm(MergedForm, _UserForm):
    family = "user"


class PersonAdmin(_Audited, _PlainDeletion, _UserAdmin):
    """Permissions come from roles alone, so that one look at a role says who may do what."""

    form = PersonForm
    actions = None
    #: Django's own has one sentence more, which it has in English alone
    add_form_template = "admin/change_form.html"
    list_display = ("username", "full_name", "roles", "is_active", "is_superuser", "last_login")
    list_filter = ("is_active", "groups")
    show_facets = admin.ShowFacets.NEVER
    filter_horizontal = ()
    fieldsets = (
        (None, {"fields": ("username", "password")}),
        (_l("个人信息"), {"fields": ("last_name", "first_name", "email")}),
        (_l("权限"), {"fields": ("is_active", "is_staff", "is_superuser", "groups")}),
        (_l("登录"), {"fields": ("last_login", "date_joined")}),
    )
    add_fieldsets = (
        (None, {"fields": ("username", "password1", "password2", "is_staff", "groups")}),
    )
    readonly_fields = ("last_login", "date_joined")

    def change_view(self, request: HttpRequest, object_id: str, *args: Any, **kwargs: Any) -> Any:
        return self._recorded(
            request, object_id, partial(super().change_view, request, object_id, *args, **kwargs)
        )

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> Any:  # noqa: A002 - Django's name
        return self._recorded(
            request, id, partial(super().user_change_password, request, id, form_url)
        )

    @staticmethod
    def _recorded(request: HttpRequest, object_id: str, shown: Callable[[], Any]) -> Any:
        if request.method != "POST" or (user_id := number(object_id)) is None:
            return shown()
        with recording_user(user_id=user_id, actor=actor_of(request)):
            return shown()

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        # somebody who may not sign in is told that the password is wrong
        return {"is_staff": True, **super().get_changeform_initial_data(request)}

    @admin.display(description=_l("姓名"))
    def full_name(self, user: User) -> str:
        return user.get_full_name() or "—"

    @admin.display(description=_l("角色"))
    def roles(self, user: User) -> str:
        return gettext("、").join(group.name for group in user.groups.all()) or "—"

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).prefetch_related("groups")

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        allowed = super().has_change_permission(request, obj)
        return allowed and (obj is None or may_manage(actor_of(request), obj))

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        allowed = super().has_delete_permission(request, obj)
        return allowed and (obj is None or may_manage(actor_of(request), obj))

    def get_fieldsets(self, request: HttpRequest, obj: User | None = None) -> Any:
        """Only a superuser makes another, so nobody else's form has the box."""
        fieldsets = super().get_fieldsets(request, obj)
        if actor_of(request).is_superuser:
            return fieldsets
        return [
            (title, {**shown, "fields": tuple(f for f in shown["fields"] if f != "is_superuser")})
            for title, shown in fieldsets
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> Any:
        """Nobody but a superuser changes the roles that they have themselves."""
        fields = tuple(super().get_readonly_fields(request, obj))
        actor = actor_of(request)
        own = obj is not None and obj.pk == actor.pk and not actor.is_superuser
        return (*fields, "groups") if own else fields

    def formfield_for_manytomany(
        self, db_field: ManyToManyField[Any, Any], request: HttpRequest, **kwargs: Any
    ) -> Any:
        if db_field.name == "groups":
            kwargs["widget"] = forms.CheckboxSelectMultiple
            kwargs["queryset"] = roles_to_give(actor_of(request))
            kwargs["help_text"] = _l("权限由角色给出：一个用户有其全部角色的权限。")
        return super().formfield_for_manytomany(db_field, request, **kwargs)


def register() -> None:
    """Put these in place of Django's own, and say 角色 where Django says 组."""
    groups = User._meta.get_field("groups")  # noqa: SLF001 - Django's documented model API
    groups.verbose_name = pgettext_lazy("plural", "角色")
    Group._meta.verbose_name = pgettext_lazy("singular", "角色")  # noqa: SLF001
    Group._meta.verbose_name_plural = pgettext_lazy("plural", "角色")  # noqa: SLF001
    admin.site.unregister([User, Group])
    admin.site.register(User, PersonAdmin)
    admin.site.register(Group, RoleAdmin)


register()
