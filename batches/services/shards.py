"""Pause or resume one shard alone; the others go on."""

from __future__ import annotations

from django.utils.translation import gettext as _

from batches.domain.errors import InvalidInputError, WrongStateError
from batches.domain.problems import Problem
from batches.domain.states import SHARD_LABELS, PauseReason, ShardStatus
from batches.domain.text import N_
from batches.domain.verbs import VERBS, Verb
from batches.models import Job, Shard
from batches.store import jobs as store
from batches.store.events import Actor

from .acting import acting, fresh


def pause_shard(
    *,
    job_id: int,
    ordinal: int,
    actor: Actor,
    reason: str = "",
    expected_version: int | None = None,
) -> Job:
    """No further item of this shard is claimed; what is in flight is still recorded."""
    return _move(
        Verb.PAUSE_SHARD,
        ShardStatus.PAUSED,
        job_id=job_id,
        ordinal=ordinal,
        actor=actor,
        reason=reason,
        expected_version=expected_version,
    )


def resume_shard(
    *,
    job_id: int,
    ordinal: int,
    actor: Actor,
    reason: str = "",
    expected_version: int | None = None,
) -> Job:
    """The shard goes on; half-open, if not a person had stopped it."""
    return _move(
        Verb.RESUME_SHARD,
        ShardStatus.RUNNING,
        job_id=job_id,
        ordinal=ordinal,
        actor=actor,
        reason=reason,
        expected_version=expected_version,
    )


def _move(
    verb: Verb,
    target: ShardStatus,
    *,
    job_id: int,
    ordinal: int,
    actor: Actor,
    reason: str,
    expected_version: int | None,
) -> Job:
    with acting(
        verb, job_id=job_id, actor=actor, reason=reason, expected_version=expected_version
    ) as act:
        shard = Shard.objects.filter(job_id=job_id, ordinal=ordinal).first()
        if shard is None:
            raise InvalidInputError(
                Problem(
                    "unknown_shard", N_("这个作业没有 %(ordinal)s 号分片。"), {"ordinal": ordinal}
                )
            )
        paused = target is ShardStatus.PAUSED
        if not paused:
            act.trust_accounts(ordinal=ordinal)
        moved = store.move_shard(
            job_id=job_id,
            ordinal=ordinal,
            target=target,
            reason=PauseReason.OPERATOR if paused else None,
        )
        if not moved:
            raise _refusal(shard, paused=paused)
        act.done(store.change_job(job_id=job_id, sources=VERBS[verb].sources))
        act.log(
            "shard.paused" if paused else "shard.resumed",
            shard_ordinal=ordinal,
            before={"status": shard.status, "reason": shard.reason},
            after={"status": target.value},
        )
    return fresh(job_id)


def _refusal(shard: Shard, *, paused: bool) -> WrongStateError:
    values = {
        "ordinal": shard.ordinal,
        "status": _(SHARD_LABELS[ShardStatus(shard.status)]),
    }
    if paused:
        return WrongStateError(
            _("%(ordinal)s 号分片现在是「%(status)s」，不能暂停；只有待跑和运行中的可以。") % values
        )
    return WrongStateError(
        _("%(ordinal)s 号分片现在是「%(status)s」，不能继续；只有已暂停的可以。") % values
    )
