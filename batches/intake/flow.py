"""The whole way of a job's file: read, check, stage, load, report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import PurePath
from typing import Any

from django.conf import settings
from django.db import transaction

from batches.actions.base import Action, Compiled
from batches.actions.registry import get_action
from batches.domain.columns import ACCOUNT, TARGET
from batches.domain.errors import InvalidInputError, WrongStateError
from batches.domain.problems import Problem
from batches.domain.states import JobStatus
from batches.models import Job, UploadChunk
from batches.models.jobs import BadRows
from batches.store import loading
from batches.store.events import add_event

from . import verdicts
from .checking import BadRow, RowChecker
from .decoding import TextKind, WorkbookKind
from .directory import AccountDirectory, known_accounts
from .header import Header, HeaderRefusedError
from .report import (
    ACCOUNTS_MAX,
    Findings,
    Json,
    empty_report,
    header_report,
    problem_to_json,
    problems_of,
)
from .source import FileRefusedError, Source
from .table import Table, open_table

PROGRESS_ROWS = 20_000
#: A file whose reading dies this often (out of memory, say) will not do better the next time.
ATTEMPTS_MAX = 5
#: So many long ids, every one ending in 0, are no coincidence.
_ROUNDED_FROM = 20
_WORKBOOKS = frozenset({".xlsx", ".xlsm", ".xls"})


def upload_source(job: Job, before_query: Callable[[], None] = lambda: None) -> Source:
    """The job's uploaded file, one chunk in memory at a time."""

    def chunks() -> Iterator[bytes]:
        found = UploadChunk.objects.filter(upload=job.upload).values_list("data", flat=True)
        for number in count():
            before_query()
            data = found.filter(number=number).first()
            if data is None:
                return
            yield bytes(data)

    return Source(job.upload.name if job.upload else "", chunks)


def read_job(job_id: int, *, wait: bool = False) -> bool:
    """Read the file of a job that is being prepared; it ends up awaiting or rejected.

    Safe to call at any time and any number of times: nothing happens (False) if the job is in
    another state, or if another process reads it right now (with `wait`, after that one is
    done). A reading that was killed left nothing behind and is simply done again.
    """
    with loading.intake_turn(job_id, wait=wait) as mine:
        job = Job.objects.select_related("upload").filter(pk=job_id).first()
        if not mine or job is None or job.status != JobStatus.PREPARING:
            return False
        return _Reading(job).run()


class _Reading:
    """One reading of one job's file."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.started = time.monotonic()
        request: Json = dict(job.intake.get("request") or {})
        request["attempts"] = int(request.get("attempts", 0)) + 1
        self.request = request
        self.report = empty_report(request)
        self.findings = Findings()
        self.free_connection: Callable[[], None] = lambda: None

    def run(self) -> bool:
        if not self._progress("reading"):
            return False
        if self.request["attempts"] > ATTEMPTS_MAX:
            return self._refuse(verdicts.gave_up())
        try:
            action = get_action(self.job.action)
            table = self._open(action)
            header = table.header
            compiled = action.compile(self.job.params, header.columns, header.mapping)
        except InvalidInputError as error:
            return self._refuse(*problems_of(error))
        self.report["warnings"] += map(problem_to_json, compiled.warnings)
        try:
            with closing(loading.Stage()) as stage:
                # the connection is busy while rows stream in, and the file is read over it too
                self.free_connection = stage.flush
                staged = self._stage_rows(stage, table, action, compiled)
                return staged and self._load(stage, header)
        except FileRefusedError as error:
            return self._refuse(*problems_of(error))

    # --- reading ---

    def _before_query(self) -> None:
        self.free_connection()

    def _open(self, action: Action) -> Table:
        """Find out what the file is and where its header is."""
        try:
            table = open_table(
                upload_source(self.job, self._before_query),
                action.columns,
                encoding=self.request.get("encoding") or None,
                choice=self.request.get("mapping") or None,
            )
        except HeaderRefusedError as error:
            # a person can say which column is which, if they see the columns
            self.report |= header_report(error.header)
            self.report |= {"encoding": error.encoding, "delimiter": error.delimiter}
            self._warn_of_name(error.encoding)
            raise
        self.report |= header_report(table.header)
        self.report["encoding"] = table.kind.encoding
        self.report["delimiter"] = table.delimiter
        self._warn_of_name(table.kind.encoding)
        if isinstance(table.kind, TextKind) and table.kind.doubtful:
            self.report["warnings"].append(problem_to_json(verdicts.doubtful()))
        return table

    def _warn_of_name(self, encoding: str) -> None:
        """A text that calls itself a workbook: mostly a list renamed by hand, not saved as one."""
        name = self.job.upload.name if self.job.upload else ""
        ending = PurePath(name).suffix.lower()
        if ending in _WORKBOOKS and encoding != WorkbookKind().encoding:
            self.report["warnings"].append(problem_to_json(verdicts.text_named_workbook(ending)))

    def _stage_rows(
        self, stage: loading.Stage, table: Table, action: Action, compiled: Compiled
    ) -> bool:
        """Check and stage every row; False if the job was discarded in the middle."""
        account_spec = next(spec for spec in action.columns if spec.key == ACCOUNT)
        checker = RowChecker(
            action=action,
            compiled=compiled,
            header=table.header,
            directory=AccountDirectory(known_accounts(), account_spec),
        )
        findings = self.findings
        for number, cells in table.rows():
            checked = checker.check(cells)
            if checked is None:
                continue
            if isinstance(checked, BadRow):
                findings.add_bad(number, checked)
                stage.add_bad(
                    number,
                    problem_to_json(checked.problem),
                    checked.column,
                    checked.value,
                    checked.cells,
                )
            else:
                findings.add_good(number, checked, compiled)
                stage.add(number, checked.account.id, checked.target, checked.joined)
            if findings.rows % PROGRESS_ROWS == 0:
                stage.flush()
                if not self._progress("reading"):
                    return False
        stage.flush()
        if not findings.rows:
            raise FileRefusedError(verdicts.header_only())
        return self._progress("loading")

    def _progress(self, phase: str) -> bool:
        self.report["phase"] = phase
        self.report["progress_rows"] = self.findings.rows
        return loading.save_progress(self.job.pk, self.report)

    # --- the end ---

    def _load(self, stage: loading.Stage, header: Header) -> bool:
        """Duplicates out, then everything into its place in one transaction.

        The job's row is not locked until its status changes at the end: whoever discards the
        job meanwhile need not wait, and then nothing of this is committed.
        """
        job, findings = self.job, self.findings
        duplicates = stage.take_duplicates_out(header.columns[header.mapping[TARGET]])
        if duplicates:
            findings.bad += duplicates.count
            findings.count(duplicates.problem, duplicates.row_no, duplicates.count)
        valid = findings.rows - findings.bad
        refused: list[Problem] = []
        if not valid:
            refused.append(verdicts.all_bad(findings.rows))
        elif findings.bad and job.bad_rows == BadRows.REFUSE:
            refused.append(verdicts.some_bad(findings.bad, findings.rows))
        self.report |= {"rows": findings.rows, "valid": valid, "rejected": findings.bad}
        if findings.long_ids >= _ROUNDED_FROM and findings.long_ids == findings.rounded_ids:
            self.report["warnings"].append(problem_to_json(verdicts.rounded(findings.long_ids)))
        try:
            with transaction.atomic():
                loading.clear_job(job.pk)
                stage.keep_rejections(job.pk)
                if refused:
                    self._finish(JobStatus.REJECTED, refused)
                else:
                    shards, items = stage.make_items(job.pk, settings.SHARD_SLICE_SIZE)
                    accounts = stage.accounts(ACCOUNTS_MAX)
                    self.report |= {"items": items, "shards": shards, "accounts": accounts}
                    self.report["accounts_total"] = stage.account_count()
                    self._finish(JobStatus.AWAITING, [], total=items, columns=list(header.columns))
        except WrongStateError:
            return False
        if valid >= loading.ANALYZE_FROM_ROWS and not refused:
            loading.analyze_items()
        return True

    def _refuse(self, *problems: Problem) -> bool:
        """The file as a whole cannot be used."""
        self.report |= {"rows": self.findings.rows, "rejected": self.findings.bad}
        try:
            with transaction.atomic():
                loading.clear_job(self.job.pk)
                self._finish(JobStatus.REJECTED, list(problems))
        except WrongStateError:
            return False
        return True

    def _finish(self, target: JobStatus, problems: list[Problem], **columns: Any) -> None:
        findings, report = self.findings, self.report
        listed = [problem_to_json(problem) for problem in problems]
        report |= {
            "phase": "done",
            "progress_rows": findings.rows,
            "by_reason": findings.by_reason(),
            "samples": findings.samples,
            "problem": listed[0] if listed else None,
            "problems": listed,
            "duration_s": round(time.monotonic() - self.started, 2),
            "request": self.request | {"attempts": 0},
        }
        rejected = target == JobStatus.REJECTED
        columns.setdefault("columns", report["columns"])
        columns.setdefault("total", 0)
        if rejected:
            # it came to nothing, so the same submission may be made again
            columns["submission_key"] = None
        loading.finish(
            self.job.pk,
            target,
            mapping=report["mapping"],
            intake=report,
            rejected_rows=findings.rows - columns["total"],
            **columns,
        )
        add_event(
            kind="job.rejected" if rejected else "job.loaded",
            job_id=self.job.pk,
            data={
                "rows": findings.rows,
                "items": report["items"],
                "rejected": findings.bad,
                "shards": report["shards"],
                "problems": listed,
            },
        )
