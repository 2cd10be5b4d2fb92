"""Taking a file in: one submission makes one job, however often it is sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from batches.actions.registry import get_action
from batches.domain.breaker import Thresholds
from batches.domain.errors import InvalidInputError, WrongStateError
from batches.domain.problems import Problem
from batches.domain.states import JOB_LABELS, JobStatus
from batches.domain.text import N_
from batches.domain.verbs import OPERATE
from batches.intake.decoding import encoding_named
from batches.intake.flow import read_job
from batches.intake.header import Choice
from batches.intake.report import empty_report
from batches.models import Job
from batches.models.jobs import BadRows, ConfirmPolicy
from batches.store import jobs as job_store
from batches.store import loading
from batches.store.events import Actor, add_event, person_of

from .acting import clean_reason, stale
from .permissions import require
from .schedule import aware
from .submission_limits import (
    ATTEMPTS,
    CALL_SIZE,
    NAME_MAX,
    Limits,
    name_problems,
    unknown_bad_rows,
)
from .uploads import CONTROLS, base_name, store_upload

_TRIES = 5


@dataclass(frozen=True, slots=True)
class Submission:
    """The job of a submission, and whether this call made it."""

    job: Job
    created: bool


class _AlreadyThereError(Exception):
    """Rolls the upload back: the same submission has a job."""

    def __init__(self, job: Job) -> None:
        super().__init__(job.pk)
        self.job = job


def submit(
    *,
    actor: Actor,
    action: str,
    params: Mapping[str, object],
    upload_name: str,
    chunks: Iterable[bytes],
    name: str = "",
    budget_limit: int | None = None,
    stages: Sequence[int] = (),
    rate_limit_per_min: int | None = None,
    confirm_policy: str = ConfirmPolicy.RESPONSE,
    bad_rows: str = BadRows.REFUSE,
    start_at: datetime | None = None,
    window_from: time | None = None,
    window_to: time | None = None,
    call_size: int = CALL_SIZE,
    max_attempts: int = ATTEMPTS,
    priority: int = 0,
    breaker: Thresholds | None = None,
    idempotency_key: str | None = None,
    rerun_reason: str = "",
    encoding: str | None = None,
    mapping: Choice | None = None,
    enqueue: bool = True,
) -> Submission:
    """Store a file and make a job of it that will be read next.

    The same submission (the same idempotency key; without one: the same action, parameters, file
    and way of reading it) gives the same job, whatever its limits: they change how it is sent,
    not that the same people would get it twice. A `rerun_reason` makes it another submission,
    which is itself made once. Nothing is stored when it is refused.

    `start_at` without an offset, and the hours, are in the installation's time zone.
    `mapping`: canonical key → header text or column index; `enqueue=False` leaves the reading
    to the caller (`run_intake`). Raises InvalidInputError with every fault, NotAllowedError.
    """
    require(actor=actor, permission=OPERATE)
    limits = Limits(
        budget=budget_limit,
        stages=tuple(stages),
        rate=rate_limit_per_min,
        policy=confirm_policy,
        bad_rows=bad_rows,
        start_at=aware(start_at),
        window_from=window_from,
        window_to=window_to,
        call_size=call_size,
        max_attempts=max_attempts,
        priority=priority,
        breaker=breaker or Thresholds(),
    )
    known = get_action(action)
    name = CONTROLS.sub(" ", name).strip()
    if problems := [*known.validate_params(params), *limits.problems(), *name_problems(name)]:
        raise InvalidInputError(*problems)
    rerun_reason = clean_reason(rerun_reason, needed=False)
    upload_name = base_name(upload_name)
    request: dict[str, Any] = {
        "encoding": encoding_named(encoding) if encoding else "",
        "mapping": dict(mapping or {}),
    }
    identity: dict[str, Any] = {"rerun": rerun_reason} if rerun_reason else {}
    if idempotency_key:
        identity["idempotency_key"] = idempotency_key
        if existing := _job_of(_digest(identity)):
            return Submission(existing, created=False)
    else:
        identity |= {"action": action, "params": dict(params), **request}
    try:
        with transaction.atomic():
            upload = store_upload(actor, upload_name, chunks)
            if not idempotency_key:
                identity["sha256"] = upload.sha256
            key = request["key"] = _digest(identity)
            if (late := limits.start_problems()) and not _job_of(key):
                raise InvalidInputError(*late)
            job = _create_once(
                key,
                action=action,
                params=dict(params),
                name=name or _default_name(str(known.label), upload_name),
                created_by=person_of(actor),
                upload=upload,
                intake=empty_report(request),
                rerun_reason=rerun_reason,
                **limits.columns(),
            )
            add_event(
                kind="job.created",
                job_id=job.pk,
                actor=actor,
                reason=rerun_reason,
                data={"file": upload.name, "size": upload.size, "sha256": upload.sha256},
            )
            if enqueue:
                transaction.on_commit(lambda: _enqueue(job.pk), robust=True)
    except _AlreadyThereError as there:
        return Submission(there.job, created=False)
    job.refresh_from_db()
    return Submission(job, created=True)


def run_intake(job_id: int, *, wait: bool = False) -> bool:
    """Read the file of a job in `preparing`; True if this call did it. See `intake.flow`."""
    return read_job(job_id, wait=wait)


def reread(
    *,
    job_id: int,
    actor: Actor,
    encoding: str | None = None,
    mapping: Choice | None = None,
    bad_rows: str | None = None,
    expected_version: int | None = None,
    enqueue: bool = True,
) -> Job:
    """Read the file of an awaiting or refused job again, in another way.

    None keeps what was chosen before; '' and {} go back to finding out by itself. Raises
    InvalidInputError, NotAllowedError, WrongStateError (started or discarded by now),
    StaleVersionError.
    """
    require(actor=actor, permission=OPERATE)
    if bad_rows is not None and bad_rows not in BadRows.values:
        raise InvalidInputError(unknown_bad_rows(bad_rows))
    try:
        with transaction.atomic():
            job = job_store.lock_job(job_id)
            if expected_version is not None and job.version != expected_version:
                raise stale(job, actor)
            request = dict(job.intake.get("request") or {}) | {"attempts": 0}
            if encoding is not None:
                request["encoding"] = encoding_named(encoding) if encoding else ""
            if mapping is not None:
                request["mapping"] = dict(mapping)
            if not job.upload_id:
                raise InvalidInputError(Problem("upload_gone", N_("原文件已不在，请重新上传。")))
            moved = job_store.move_job(
                job_id=job_id,
                target=JobStatus.PREPARING,
                intake=empty_report(request),
                submission_key=request.get("key"),
                bad_rows=bad_rows or job.bad_rows,
                columns=[],
                mapping={},
                total=0,
                rejected_rows=0,
            )
            if not moved:
                status = _(JOB_LABELS[JobStatus(job.status)])
                raise WrongStateError(
                    _("作业现在是「%(status)s」，不能重新读取文件。") % {"status": status}
                )
            loading.clear_job(job_id)
            add_event(
                kind="job.reread",
                job_id=job_id,
                actor=actor,
                data={
                    "encoding": request.get("encoding", ""),
                    "mapping": request.get("mapping", {}),
                    "bad_rows": bad_rows or job.bad_rows,
                },
            )
            if enqueue:
                transaction.on_commit(lambda: _enqueue(job_id), robust=True)
    except Job.DoesNotExist:
        raise InvalidInputError(
            Problem("unknown_job", N_("没有编号为 %(id)s 的作业。"), {"id": job_id})
        ) from None
    except IntegrityError as error:
        other = _job_of(str(request.get("key")))
        raise WrongStateError(
            _("这份文件后来又提交过，见作业 %(id)s；请在那里继续。")
            % {"id": other.pk if other else "?"}
        ) from error
    return Job.objects.get(pk=job_id)


def _create_once(key: str, **columns: Any) -> Job:
    """The job of `key`. Raises _AlreadyThereError where another call has made it.

    A concurrent insert of the same key waits here for the other transaction to end.
    """
    for _attempt in range(_TRIES):
        try:
            with transaction.atomic():
                return Job.objects.create(submission_key=key, **columns)
        except IntegrityError:
            if existing := _job_of(key):
                raise _AlreadyThereError(existing) from None
            # given up between the two statements: the key is free again
    raise WrongStateError(_("同一份文件正在被多处提交，请稍后再试。"))


def _job_of(key: str) -> Job | None:
    return Job.objects.filter(submission_key=key).first()


def _digest(identity: Mapping[str, Any]) -> str:
    text = json.dumps(identity, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _default_name(label: str, upload_name: str) -> str:
    today = timezone.localdate().isoformat()
    stem = upload_name.rsplit(".", 1)[0] or upload_name
    return f"{_(label)} {today} {stem}"[:NAME_MAX]


def _enqueue(job_id: int) -> None:
    """Only a hint: the periodic work finds jobs in `preparing` by itself."""
    from batches.queue import enqueue_intake

    enqueue_intake(job_id)
