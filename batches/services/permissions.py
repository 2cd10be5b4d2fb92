"""Who may do what."""

from __future__ import annotations

from django.conf import settings
from django.utils.translation import gettext as _

from batches.domain.errors import NotAllowedError
from batches.domain.verbs import VERBS, Verb
from batches.models import Job
from batches.store.events import Actor, person_of


def is_allowed(*, actor: Actor, permission: str) -> bool:
    """The command line and the system may: whoever reached them holds the keys anyway."""
    person = person_of(actor)
    return person is None or (person.is_active and person.has_perm(permission))


def may(*, actor: Actor, verb: Verb) -> bool:
    """Whether the screens offer `verb` to this person at all."""
    return is_allowed(actor=actor, permission=VERBS[verb].permission)


def needs_second_person(*, job: Job, actor: Actor) -> bool:
    """Whether the job is so large that its maker may not be the one who confirms it."""
    limit = settings.FOUR_EYES_ABOVE
    person = person_of(actor)
    return bool(limit and job.total > limit and person and job.created_by_id == person.pk)


def require(*, actor: Actor, permission: str) -> None:
    """Raises `NotAllowedError`, naming the missing permission."""
    if is_allowed(actor=actor, permission=permission):
        return
    codename = permission.partition(".")[2]
    labels = {code: str(label) for code, label in Job._meta.permissions}  # noqa: SLF001 - Django's public name for it
    raise NotAllowedError(
        _("您没有权限：%(permission)s。请联系主管。")
        % {"permission": labels.get(codename, permission)}
    )
