"""Start, pause, resume, cancel, terminate."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db.models import Sum
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.translation import gettext as _

from batches.domain.errors import InvalidInputError, NotAllowedError, WrongStateError
from batches.domain.lifecycle import stages_passed_next
from batches.domain.problems import Problem
from batches.domain.states import JobStatus, PauseReason
from batches.domain.text import N_
from batches.domain.verbs import VERBS, Verb
from batches.models import Job, Shard
from batches.store import jobs as store
from batches.store.events import Actor

from .acting import Act, acting, fresh
from .permissions import needs_second_person, require


def confirm_job(*, job_id: int, actor: Actor, expected_version: int | None = None) -> Job:
    """awaiting → running: from now on items may be sent."""
    with acting(Verb.CONFIRM, job_id=job_id, actor=actor, expected_version=expected_version) as act:
        if needs_second_person(job=act.job, actor=actor):
            raise NotAllowedError(
                _(
                    "超过 %(limit)s 条的作业要由创建者以外的人确认。"
                    "请同事核对预览后点「确认并启动」。"
                )
                % {"limit": settings.FOUR_EYES_ABOVE}
            )
        act.done(store.start_job(job_id))
        act.log_move("job.confirmed", JobStatus.RUNNING, total=act.job.total)
    return fresh(job_id)


def pause_job(
    *, job_id: int, actor: Actor, reason: str = "", expected_version: int | None = None
) -> Job:
    """No further claim commits after this; what is in flight is still recorded.

    running → paused at once if nothing is in flight, else → pausing.
    """
    with acting(
        Verb.PAUSE, job_id=job_id, actor=actor, reason=reason, expected_version=expected_version
    ) as act:
        inflight = store.in_flight(job_id)
        target = JobStatus.PAUSING if inflight else JobStatus.PAUSED
        act.done(store.move_job(job_id=job_id, target=target, reason=PauseReason.OPERATOR))
        act.log_move(f"job.{target.value}", target, inflight=inflight)
    return fresh(job_id)


def resume_job(
    *, job_id: int, actor: Actor, reason: str = "", expected_version: int | None = None
) -> Job:
    """Back to running.

    Shards that the system had stopped (breaker, lost login) are taken up again too, half-open: one
    item at a time until one went well, and stopped again by a bad one. So is every shard of a job
    that was stopped as a whole. That is also what resuming a job means that runs
    on with some of its shards stopped. A job at a checkpoint passes it (needs the approver's
    permission); a terminated one first needs all its doubts reconciled.
    """
    with acting(
        Verb.RESUME,
        job_id=job_id,
        actor=actor,
        reason=reason,
        expected_version=expected_version,
        also=frozenset({JobStatus.RUNNING}),
    ) as act:
        columns: dict[str, Any] = {}
        data: dict[str, Any] = {}
        if act.status is JobStatus.TERMINATED:
            _refuse_in_doubt(act)
        if act.status is not JobStatus.RUNNING:
            _refuse_used_up(act)
        if act.job.pause_reason == PauseReason.STAGE:
            require(actor=actor, permission=VERBS[Verb.CONFIRM_STAGE].permission)
            columns["stages_passed"] = next_stages_passed(act.job)
            data["stages_passed"] = columns["stages_passed"]
        if act.job.start_at is not None and act.job.start_at <= timezone.now():
            # whoever resumes after the set start wants it now, and is not asked again
            columns["start_at"] = None
        act.trust_accounts()
        if shards := store.resume_tripped_shards(job_id):
            data["shards"] = shards
        if act.status is JobStatus.TERMINATED or act.job.pause_reason in _STOPPED_AS_A_WHOLE:
            store.probe_shards(job_id)
        if act.status is JobStatus.RUNNING:
            act.done(bool(shards) and store.change_job(job_id=job_id, sources=[act.status]))
            act.log("job.resumed", **data)
        else:
            act.done(store.resume_job(job_id=job_id, **columns))
            act.log_move("job.resumed", JobStatus.RUNNING, **data)
    return fresh(job_id)


#: a terminated job forgets why it stood before that, and is treated like these
_STOPPED_AS_A_WHOLE = (PauseReason.BREAKER, PauseReason.PERMISSION)


def next_stages_passed(job: Job) -> int:
    """How many checkpoints count as passed once the present one is confirmed."""
    return stages_passed_next(job.stages, passed=job.stages_passed, used=job.budget_used)


def _refuse_in_doubt(act: Act) -> None:
    doubts = Shard.objects.filter(job_id=act.job.pk).aggregate(n=Sum("in_doubt"))["n"] or 0
    if doubts:
        raise WrongStateError(
            _("还有 %(count)s 条存疑（不知道是否已送达），核实完才能继续。不会自动重发。")
            % {"count": doubts}
        )


def _refuse_used_up(act: Act) -> None:
    job = act.job
    if job.budget_limit is None or job.budget_used < job.budget_limit:
        return
    if act.status is JobStatus.PAUSING:
        return  # a refusal still to come returns its send; the limit is looked at after that
    left = Shard.objects.filter(job_id=job.pk).aggregate(n=Sum("pending"))["n"] or 0
    if left:
        raise WrongStateError(
            _("预算 %(limit)s 条已用完，还有 %(left)s 条未发。请先提高预算，再继续。")
            % {"limit": job.budget_limit, "left": left}
        )


def cancel_job(
    *, job_id: int, actor: Actor, reason: str, expected_version: int | None = None
) -> Job:
    """Give up what is not sent yet, for good; what was sent stays sent.

    The remaining items are abandoned in bounded steps afterwards (cancelling → cancelled). A
    job that never started gives its submission back, so that it can be made again.
    """
    with acting(
        Verb.CANCEL, job_id=job_id, actor=actor, reason=reason, expected_version=expected_version
    ) as act:
        unstarted = act.status in (JobStatus.PREPARING, JobStatus.AWAITING)
        columns: dict[str, Any] = {"submission_key": None} if unstarted else {}
        target = JobStatus.CANCELLING
        if act.status is JobStatus.PREPARING:
            # no items yet: intake loads them in the one transaction that leaves `preparing`
            target, columns["finished_at"] = JobStatus.CANCELLED, Now()
        act.done(store.move_job(job_id=job_id, target=target, **columns))
        act.log_move(f"job.{target.value}", target)
    return fresh(job_id)


def terminate_job(
    *,
    job_id: int,
    actor: Actor,
    reason: str,
    confirm_name: str | None = None,
    expected_version: int | None = None,
) -> Job:
    """Cut off what is in flight; that may leave items in doubt.

    `confirm_name` is what the person typed to confirm; None where nobody is asked.
    """
    with acting(
        Verb.TERMINATE,
        job_id=job_id,
        actor=actor,
        reason=reason,
        expected_version=expected_version,
    ) as act:
        if confirm_name is not None and confirm_name.strip() != act.job.name.strip():
            raise InvalidInputError(
                Problem(
                    "name_mismatch",
                    N_("输入的名称与作业名称「%(name)s」不一致，没有终止。"),
                    {"name": act.job.name},
                )
            )
        inflight = store.in_flight(job_id)
        act.done(store.move_job(job_id=job_id, target=JobStatus.TERMINATING))
        act.log_move("job.terminating", JobStatus.TERMINATING, inflight=inflight)
    return fresh(job_id)
