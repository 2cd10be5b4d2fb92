"""Who may do what."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.models import User
from django.utils.translation import gettext as _

from batches.domain.errors import NotAllowedError
from batches.domain.verbs import VERBS, Verb
from batches.models import Job


def is_allowed(*, actor: User | None, permission: str) -> bool:
    """None is the command line or the system: whoever reached it holds the keys anyway."""
    return actor is None or (actor.is_active and actor.has_perm(permission))


def may(*, actor: User | None, verb: Verb) -> bool:
    """Whether the screens offer `verb` to this person at all."""
    return is_allowed(actor=actor, permission=VERBS[verb].permission)


def needs_second_person(*, job: Job, actor: User | None) -> bool:
    """Whether the job is so large that its maker may not be the one who confirms it."""
    limit = settings.FOUR_EYES_ABOVE
    return bool(limit and job.total > limit and actor and job.created_by_id == actor.pk)


def require(*, actor: User | None, permission: str) -> None:
    """Raises `NotAllowedError`, naming the missing permission."""
    if is_allowed(actor=actor, permission=permission):
        return
    codename = permission.partition(".")[2]
    labels = {code: str(label) for code, label in Job._meta.permissions}  # noqa: SLF001 - Django's public name for it
    raise NotAllowedError(
        _("您没有权限：%(permission)s。请联系主管。")
        % {"permission": labels.get(codename, permission)}
    )
