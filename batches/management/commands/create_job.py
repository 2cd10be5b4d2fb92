"""manage.py create_job: a file becomes a job, read and checked before the command returns."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand
from django.utils.translation import gettext as _

from batches.domain.breaker import Thresholds
from batches.domain.errors import InvalidInputError, WrongStateError
from batches.domain.problems import Problem
from batches.domain.states import JOB_LABELS, JobStatus
from batches.domain.text import N_
from batches.intake.source import CHUNK_BYTES
from batches.models import Job
from batches.models.jobs import BadRows, ConfirmPolicy
from batches.services.jobs import confirm_job
from batches.services.submission_limits import ATTEMPTS, CALL_SIZE
from batches.services.submissions import Submission, run_intake, submit

from ._actor import shell
from ._intake import REFUSED, reasons, say_refused
from ._options import ALL_DAY, add_breaker, add_schedule, breaker_changes, moment

WRONG_STATE = 3


class Command(BaseCommand):
    help = "Create a job from a CSV or .xlsx file. Exit 0: made or already there; 2: refused."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--action", required=True)
        parser.add_argument("--csv", required=True, type=Path, metavar="FILE", dest="file")
        parser.add_argument(
            "--param", action="append", default=[], type=_param, metavar="NAME=VALUE"
        )
        parser.add_argument("--name", default="")
        parser.add_argument("--budget", type=int, help="most sends of this job")
        parser.add_argument(
            "--stages", type=_numbers, default=(), metavar="N,N,…", help="cumulative checkpoints"
        )
        parser.add_argument("--rate", type=int, metavar="PER_MIN")
        add_schedule(parser)
        parser.add_argument("--call-size", type=int, default=CALL_SIZE, metavar="N")
        parser.add_argument("--max-attempts", type=int, default=ATTEMPTS, metavar="N")
        parser.add_argument("--priority", type=int, default=0, metavar="N")
        add_breaker(parser)
        parser.add_argument("--idempotency-key")
        parser.add_argument("--rerun-reason", default="", help="run the same submission again")
        parser.add_argument("--confirm-policy", choices=ConfirmPolicy.values, default="response")
        parser.add_argument("--bad-rows", choices=BadRows.values, default="refuse")
        parser.add_argument("--encoding", help="instead of finding it out")
        parser.add_argument("--start", action="store_true", help="confirm the job at once")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            submission = self._submit(options)
            run_intake(submission.job.pk, wait=True)
            job = Job.objects.get(pk=submission.job.pk)
            if job.status == JobStatus.REJECTED:
                self._say_rejected(job, as_json=options["json"])
                raise SystemExit(REFUSED)
            if options["start"] and job.status == JobStatus.AWAITING:
                self._start(job)
        except (InvalidInputError, OSError) as error:
            say_refused(self, error, as_json=options["json"])
            raise SystemExit(REFUSED) from None
        except WrongStateError as error:
            self.stderr.write(str(error))
            raise SystemExit(WRONG_STATE) from None
        self._say_report(submission, as_json=options["json"])

    @staticmethod
    def _start(job: Job) -> None:
        """Confirm it, unless the same command beside this one was a moment earlier."""
        try:
            confirm_job(job_id=job.pk, actor=shell())
        except WrongStateError:
            job.refresh_from_db()
            if job.status == JobStatus.AWAITING:
                raise

    def _submit(self, options: dict[str, Any]) -> Submission:
        file: Path = options["file"]
        window_from, window_to = options["window"] or ALL_DAY
        _check_texts(
            options["name"],
            options["rerun_reason"],
            options["idempotency_key"],
            *(text for pair in options["param"] for text in pair),
        )
        return submit(
            actor=shell(),
            action=options["action"],
            params=dict(options["param"]),
            # of an archive from another system the name may be no UTF-8
            upload_name=os.fsencode(file.name).decode("utf-8", "replace"),
            chunks=_chunks(file),
            name=options["name"],
            budget_limit=options["budget"],
            stages=options["stages"],
            rate_limit_per_min=options["rate"],
            confirm_policy=options["confirm_policy"],
            bad_rows=options["bad_rows"],
            start_at=moment(options["start_at"]),
            window_from=window_from,
            window_to=window_to,
            call_size=options["call_size"],
            max_attempts=options["max_attempts"],
            priority=options["priority"],
            breaker=Thresholds(**breaker_changes(options)),
            idempotency_key=options["idempotency_key"],
            rerun_reason=options["rerun_reason"],
            encoding=options["encoding"],
            enqueue=False,
        )

    def _say_rejected(self, job: Job, *, as_json: bool) -> None:
        """The job stays visible as 导入失败, with all its bad rows."""
        found = reasons(job.intake)
        for reason in found:
            line = reason["text"]
            if "count" in reason:
                line = _("%(count)s 行，例如第 %(row)s 行：%(text)s") % {
                    "count": reason["count"],
                    "row": reason["example_row"],
                    "text": reason["text"],
                }
            self.stderr.write(line)
        if as_json:
            self.stdout.write(
                json.dumps(
                    {
                        "error": found[0]["text"],
                        "problems": found,
                        "id": job.pk,
                        "name": job.name,
                        "status": job.status,
                        "rows": job.intake["rows"],
                        "bad_rows": job.intake["rejected"],
                        "rejected_rows": job.rejected_rows,
                    },
                    ensure_ascii=False,
                )
            )

    def _say_report(self, submission: Submission, *, as_json: bool) -> None:
        from batches.selectors.report import job_report

        report = job_report(submission.job.pk) | {"created": submission.created}
        if as_json:
            self.stdout.write(json.dumps(report, ensure_ascii=False, default=str))
            return
        made = _("已创建") if submission.created else _("已经存在（相同的提交）")
        self.stdout.write(
            _("作业 %(id)s %(name)s：%(made)s，%(status)s，%(total)s 条，%(rejected)s 行未导入")
            % {
                "id": report["id"],
                "name": report["name"],
                "made": made,
                "status": _(JOB_LABELS[JobStatus(report["status"])]),
                "total": report["items"]["total"],
                "rejected": report["rejected_rows"],
            }
        )


def _chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as handle:
        while chunk := handle.read(CHUNK_BYTES):
            yield chunk


def _param(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ArgumentTypeError(_("参数要写成 名称=值，现在是“%(text)s”") % {"text": text})
    return name.strip(), value


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.replace("，", ",").split(",") if part.strip())
    except ValueError:
        raise ArgumentTypeError(
            _("检查点要写成用逗号分隔的整数，例如 50,500；现在是“%(text)s”") % {"text": text}
        ) from None


def _check_texts(*texts: str | None) -> None:
    """Bytes that are no UTF-8 come as lone surrogates, which no database and no gateway takes."""
    for text in filter(None, texts):
        try:
            text.encode()
        except UnicodeEncodeError:
            shown = text.encode("utf-8", "replace").decode()
            raise InvalidInputError(
                Problem(
                    "text_not_utf8",
                    N_("“%(text)s”里有不是 UTF-8 的字节。请检查终端或脚本的编码。"),
                    {"text": shown[:40]},
                )
            ) from None
