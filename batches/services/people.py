"""Users and roles as the audit sees them: who may do what, and who made it so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.contrib.auth.models import Group, Permission, User
from django.db import transaction
from django.db.models import QuerySet

from batches.store.events import Actor, add_event

from .changes import Facts, difference

_USER_FIELDS = (
    "username",
    "last_name",
    "first_name",
    "email",
    "is_active",
    "is_staff",
    "is_superuser",
)


@contextmanager
def recording_user(*, user_id: int, actor: Actor) -> Iterator[None]:
    """Whatever is done to a user inside becomes one line, in the same transaction.

    A password is only said to have changed. Inside without a change nothing is written.
    """
    with transaction.atomic():
        before = _user_facts(_locked_user(user_id))
        yield
        user = _locked_user(user_id)
        if user is not None:
            _record("user", user, before, _user_facts(user), actor)


@contextmanager
def recording_role(*, role_id: int, actor: Actor) -> Iterator[None]:
    """The same for a role."""
    with transaction.atomic():
        before = _role_facts(_locked_role(role_id))
        yield
        role = _locked_role(role_id)
        if role is not None:
            _record("role", role, before, _role_facts(role), actor)


def record_added(*, row: User | Group, actor: Actor) -> None:
    """A user or role that was just made, with its roles and permissions."""
    kind, facts = _seen(row)
    _record(kind, row, None, facts, actor)


def delete_person_or_role(*, row: User | Group, actor: Actor) -> None:
    """Delete it, and keep what it was."""
    kind, facts = _seen(row)
    with transaction.atomic():
        # the line first: whoever deletes themselves is named in it all the same
        data = {"object": {"id": row.pk, "name": str(row)}, **difference(facts, None)}
        add_event(kind=f"{kind}.deleted", actor=actor, data=data)
        row.delete()


def _seen(row: User | Group) -> tuple[str, Facts | None]:
    return ("user", _user_facts(row)) if isinstance(row, User) else ("role", _role_facts(row))


def _record(
    kind: str, row: User | Group, before: Facts | None, after: Facts | None, actor: Actor
) -> None:
    if data := difference(before, after):
        verb = "added" if before is None else "changed"
        add_event(
            kind=f"{kind}.{verb}",
            actor=actor,
            data={"object": {"id": row.pk, "name": str(row)}, **data},
        )


def _locked_user(user_id: int) -> User | None:
    return User.objects.select_for_update(no_key=True).filter(pk=user_id).first()


def _locked_role(role_id: int) -> Group | None:
    return Group.objects.select_for_update(no_key=True).filter(pk=role_id).first()


def _user_facts(user: User | None) -> Facts | None:
    if user is None:
        return None
    return Facts(
        {
            **{name: getattr(user, name) for name in _USER_FIELDS},
            "groups": sorted(user.groups.values_list("name", flat=True)),
            "permissions": _codenames(user.user_permissions.all()),
        },
        {"password": user.password if user.has_usable_password() else None},
    )


def _role_facts(role: Group | None) -> Facts | None:
    if role is None:
        return None
    return Facts({"name": role.name, "permissions": _codenames(role.permissions.all())})


def _codenames(permissions: QuerySet[Permission]) -> list[str]:
    names = permissions.values_list("content_type__app_label", "codename")
    return sorted(f"{app}.{codename}" for app, codename in names)
