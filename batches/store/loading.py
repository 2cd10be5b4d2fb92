"""Loading a job's items: staging, duplicates, shards, and the end of preparing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from django.db import connection

from batches.domain.errors import WrongStateError
from batches.domain.problems import Problem
from batches.domain.states import JobStatus
from batches.domain.text import N_

from .jobs import move_job
from .queries import sql

#: From here on the planner needs to hear at once how many rows there are.
ANALYZE_FROM_ROWS = 20_000
_CUT = 200
_WRITE_ROWS = 500
_BAD_CHARS = 4_000_000

DUPLICATE_TEXT = N_("“%(value)s”重复：同一账号下第 %(first)s 行已有。只保留第一次出现的。")


@contextmanager
def intake_turn(job_id: int, *, wait: bool = False) -> Iterator[bool]:
    """Whether this session alone reads the job's file now; with `wait`, once it does."""
    name = "intake_lock_wait" if wait else "intake_lock"
    with connection.cursor() as cursor:
        cursor.execute(sql(name), {"job": job_id})
        held = wait or bool(cursor.fetchone()[0])
    try:
        yield held
    finally:
        if held and connection.connection is not None and not connection.connection.broken:
            with connection.cursor() as cursor:
                cursor.execute(sql("intake_unlock"), {"job": job_id})


def save_progress(job_id: int, report: Mapping[str, Any]) -> bool:
    """Show how far the reading is; False if the job is no longer being prepared."""
    with connection.cursor() as cursor:
        cursor.execute(sql("intake_progress"), {"job": job_id, "report": json.dumps(report)})
        return bool(cursor.rowcount == 1)


def clear_job(job_id: int) -> None:
    """Take away items, shards and rejections of an earlier reading; the caller holds the job."""
    with connection.cursor() as cursor:
        cursor.execute(sql("job_clear"), {"job": job_id})


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Rows that repeat an earlier one, and the first of them."""

    count: int
    row_no: int
    problem: Problem


class Stage:
    """Checked rows on their way into the database, in tables of this session.

    Good rows stream into an open COPY, so that the server works while the next ones are being
    checked. The connection takes no other statement until `flush`.
    """

    def __init__(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(sql("stage_open"))
        self._rows: list[str] = []
        self._bad: list[str] = []
        self._bad_size = 0
        self._streams = ExitStack()
        self._copy: psycopg.Copy | None = None

    def close(self) -> None:
        """Drop what is staged; a broken connection has done so by itself."""
        if connection.connection is not None and not connection.connection.broken:
            self._end_copy()
            with connection.cursor() as cursor:
                cursor.execute(sql("stage_close"))

    def add(self, row_no: int, account_id: int, target: str, fields: str) -> None:
        """A good row, its cells joined by U+001F."""
        self._rows.append(f"{row_no}\t{account_id}\t{_escape(target)}\t{_escape(fields)}\n")
        if len(self._rows) >= _WRITE_ROWS:
            self._write()

    def add_bad(
        self,
        row_no: int,
        problem: Mapping[str, Any],
        column: str,
        value: str,
        fields: Sequence[str],
    ) -> None:
        """A rejected row; `problem` as JSON, `fields` as read."""
        values = (
            problem["code"],
            column[:_CUT],
            value[:_CUT],
            problem["text"],
            json.dumps(problem["params"], ensure_ascii=False),
            json.dumps(fields, ensure_ascii=False),
        )
        line = "\t".join((str(row_no), *map(_escape, values))) + "\n"
        self._bad.append(line)
        self._bad_size += len(line)
        if self._bad_size > _BAD_CHARS:
            self.flush()

    def flush(self) -> None:
        """Have the server take in all that was added; the connection is free afterwards."""
        if self._rows:
            self._write()
        self._end_copy()
        if self._bad:
            with connection.cursor() as cursor, cursor.copy(sql("stage_copy_bad")) as copy:
                copy.write("".join(self._bad))
            self._bad.clear()
            self._bad_size = 0

    def _write(self) -> None:
        if self._copy is None:
            cursor = self._streams.enter_context(connection.cursor())
            self._copy = self._streams.enter_context(cursor.copy(sql("stage_copy_rows")))
        self._copy.write("".join(self._rows))
        self._rows.clear()

    def _end_copy(self) -> None:
        self._copy = None
        self._streams.close()

    def take_duplicates_out(self, column: str) -> Duplicates | None:
        """Move rows that repeat an earlier account and target to the rejected ones."""
        with connection.cursor() as cursor:
            cursor.execute("analyze intake_row")
            cursor.execute(
                sql("stage_duplicates"),
                {"code": "duplicate", "column": column[:_CUT], "text": DUPLICATE_TEXT},
            )
            count, row_no, first, target = cursor.fetchone()
        if not count:
            return None
        problem = Problem("duplicate", DUPLICATE_TEXT, {"value": target, "first": first})
        return Duplicates(count, row_no, problem)

    def make_items(self, job_id: int, slice_size: int) -> tuple[int, int]:
        """Shards and items of the staged rows; how many of each (shards, items)."""
        values = {"job": job_id, "size": slice_size}
        with connection.cursor() as cursor:
            cursor.execute("set local jit = off")
            cursor.execute("set local work_mem = '128MB'")
            cursor.execute(sql("stage_slices"), values)
            cursor.execute("analyze intake_slice")
            cursor.execute(sql("shards_insert"), values)
            shards = cursor.rowcount
            cursor.execute(sql("items_insert"), values)
            return shards, cursor.rowcount

    def accounts(self, limit: int) -> list[dict[str, Any]]:
        """The split per account, largest first."""
        with connection.cursor() as cursor:
            cursor.execute(sql("stage_accounts"), {"limit": limit})
            return [
                {"account": guid, "name": name, "items": items, "shards": shards}
                for guid, name, items, shards in cursor.fetchall()
            ]

    def account_count(self) -> int:
        """How many accounts take part."""
        with connection.cursor() as cursor:
            cursor.execute("select count(distinct account_id) from intake_slice")
            return int(cursor.fetchone()[0])

    def keep_rejections(self, job_id: int) -> int:
        """Store the rejected rows with the job; how many."""
        with connection.cursor() as cursor:
            cursor.execute(sql("rejections_insert"), {"job": job_id})
            return int(cursor.rowcount)


def finish(job_id: int, target: JobStatus, **columns: Any) -> None:
    """preparing → awaiting or rejected. Raises WrongStateError if it was discarded meanwhile."""
    if not move_job(job_id=job_id, target=target, **columns):
        raise WrongStateError


def analyze_items() -> None:
    """Tell the planner about many new rows."""
    with connection.cursor() as cursor:
        cursor.execute("analyze batches_item, batches_shard")


def _escape(text: str) -> str:
    """A value in the text format of COPY."""
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if "\n" in text:
        text = text.replace("\n", "\\n")
    if "\r" in text:
        text = text.replace("\r", "\\r")
    if "\t" in text:
        text = text.replace("\t", "\\t")
    return text
