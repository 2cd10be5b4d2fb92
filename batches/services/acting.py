"""The frame of every verb: permission, lock, version, state, audit, and what follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from batches.domain.actors import actor_words
from batches.domain.errors import InvalidInputError, StaleVersionError, WrongStateError
from batches.domain.event_kinds import event_label
from batches.domain.problems import Problem
from batches.domain.states import JOB_LABELS, PAUSE_LABELS, JobStatus
from batches.domain.text import N_
from batches.domain.verbs import REASON_MAX, SETTINGS, VERBS, Verb, verbs_for
from batches.models import Event, Job
from batches.queue import wake_lanes
from batches.store import jobs as store
from batches.store.advance import advance_jobs
from batches.store.events import Actor, actor_id, add_event

from .permissions import require


@dataclass(slots=True)
class Act:
    """One verb at work on a locked job."""

    verb: Verb
    job: Job
    actor: Actor
    reason: str

    @property
    def status(self) -> JobStatus:
        return JobStatus(self.job.status)

    def log(self, kind: str, *, shard_ordinal: int | None = None, **data: Any) -> None:
        """The event of this act."""
        add_event(
            kind=kind,
            job_id=self.job.pk,
            shard_ordinal=shard_ordinal,
            actor=self.actor,
            reason=self.reason,
            data=data,
        )

    def log_move(self, kind: str, target: JobStatus, **data: Any) -> None:
        """The event of a change of status."""
        before = {"status": self.job.status, "pause_reason": self.job.pause_reason}
        self.log(kind, before=before, after={"status": target.value}, **data)

    def trust_accounts(self, *, ordinal: int | None = None) -> None:
        """Take the person's word that accounts which had lost their login have it again."""
        for account_id in store.trust_accounts(job_id=self.job.pk, ordinal=ordinal):
            add_event(
                kind="account.credential_restored",
                account_id=account_id,
                actor=self.actor,
                reason=self.reason,
                data={"job": self.job.pk},
            )

    def done(self, moved: bool) -> None:
        """A guarded update under the lock cannot miss; if it does, nothing may be recorded."""
        if not moved:
            raise refusal(self.job, self.verb)


@contextmanager
def acting(
    verb: Verb,
    *,
    job_id: int,
    actor: Actor,
    reason: str = "",
    expected_version: int | None = None,
    also: frozenset[JobStatus] = frozenset(),
) -> Iterator[Act]:
    """One transaction around a verb; afterwards the job is advanced and lanes are woken.

    `also` are states beside the verb's own for which the verb itself decides.

    Raises `NotAllowedError`, `InvalidInputError` (unknown job, reason), `StaleVersionError`,
    `WrongStateError`; nothing is changed then.
    """
    require(actor=actor, permission=VERBS[verb].permission)
    reason = clean_reason(reason, needed=VERBS[verb].needs_reason)
    with transaction.atomic():
        # 1. lock, 2. is it still what the person saw, 3. is it in a state for the verb
        try:
            job = store.lock_job(job_id)
        except Job.DoesNotExist:
            raise InvalidInputError(
                Problem("unknown_job", N_("没有编号为 %(id)s 的作业。"), {"id": job_id})
            ) from None
        if expected_version is not None and job.version != expected_version:
            raise stale(job, actor)
        if JobStatus(job.status) not in VERBS[verb].sources | also:
            raise refusal(job, verb)
        yield Act(verb=verb, job=job, actor=actor, reason=reason)
        transaction.on_commit(lambda: _follow_up(job_id), robust=True)


def _follow_up(job_id: int) -> None:
    """What the next lane turn would do anyway, at once.

    Robust: the verb is committed, and PostgreSQL, not this hint, is what lanes go by.
    """
    advance_jobs(job_ids=[job_id])
    wake_lanes()


def clean_reason(reason: str, *, needed: bool) -> str:
    """The reason as it is kept. Raises `InvalidInputError`."""
    reason = reason.replace("\x00", "").strip()
    if needed and not reason:
        raise InvalidInputError(Problem("reason_required", N_("请填写原因。")))
    if len(reason) > REASON_MAX:
        raise InvalidInputError(
            Problem(
                "reason_too_long",
                N_("原因最多 %(most)s 字，现在是 %(count)s 字。"),
                {"most": REASON_MAX, "count": len(reason)},
            )
        )
    return reason


def status_words(job: Job) -> str:
    """「已暂停」（预算用完）"""
    words = _("「%(status)s」") % {"status": _(JOB_LABELS[JobStatus(job.status)])}
    if job.pause_reason in _PAUSE_WORDS:
        words += _("（%(reason)s）") % {"reason": _(_PAUSE_WORDS[job.pause_reason])}
    return words


_PAUSE_WORDS: Mapping[str, str] = {reason.value: text for reason, text in PAUSE_LABELS.items()}


_NO_WAY_ON = SETTINGS | {Verb.RECONCILE, Verb.PAUSE_SHARD, Verb.RESUME_SHARD}


def refusal(job: Job, verb: Verb) -> WrongStateError:
    """What the job is now, and what is possible instead."""
    possible = [
        _(VERBS[other].label)
        for other in verbs_for(JobStatus(job.status))
        if other not in _NO_WAY_ON | {verb}
    ]
    values = {
        "status": status_words(job),
        "verb": _(VERBS[verb].label),
        "possible": _("、").join(possible),
    }
    if not possible:
        return WrongStateError(_("作业现在是%(status)s，不能「%(verb)s」。") % values)
    return WrongStateError(
        _("作业现在是%(status)s，不能「%(verb)s」。现在可以：%(possible)s。") % values
    )


def stale(job: Job, actor: Actor) -> StaleVersionError:
    """What the job is now, and who made it so: perhaps the person in another tab."""
    last = Event.objects.filter(job_id=job.pk, item_id=None).order_by("-id").first()
    if last is None:
        return StaleVersionError(
            _("状态已被他人更改：作业现在是%(status)s。请查看最新状态后再操作。")
            % {"status": status_words(job)}
        )
    values = {
        "status": status_words(job),
        "who": actor_words(last.actor_name, _),
        "when": f"{timezone.localtime(last.at):%m-%d %H:%M:%S}",
        "what": _(event_label(last.kind)),
    }
    if last.actor_id is not None and last.actor_id == actor_id(actor):
        text = _(
            "这个页面打开之后作业已经变化：现在是%(status)s，"
            "最后一次更改是您自己在 %(when)s 的「%(what)s」。请查看最新状态后再操作。"
        )
        return StaleVersionError(text % values, own=True)
    text = _(
        "状态已被他人更改：作业现在是%(status)s，"
        "最后一次更改是 %(who)s 在 %(when)s 的「%(what)s」。请查看最新状态后再操作。"
    )
    return StaleVersionError(text % values)


def fresh(job_id: int) -> Job:
    """The job after the verb and whatever followed from it at once."""
    return Job.objects.get(pk=job_id)
