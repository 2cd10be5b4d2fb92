"""bin/demo --once: one job from its file to its end, every row accounted for."""

from __future__ import annotations

import io
import json
import secrets
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from django.core.management import call_command

from wecom_ops.local.child import Child
from wecom_ops.local.demo import try_manage
from wecom_ops.local.files import LocalStackError, tail

_STATES = ("pending", "submitted", "confirmed", "failed", "abandoned")
_MOVING = frozenset({"preparing", "running", "pausing", "verifying", "cancelling", "terminating"})
_STALL_SECONDS = 180.0
_BAR_CELLS = 32
Report = dict[str, Any]


def run(csv_file: Path, message: str, workers: Child, logs: Path) -> int:
    job = create(csv_file, message)
    if job is None:
        return 2
    final = watch(job["id"], workers, logs)
    print(describe(final))
    print(json.dumps(final, ensure_ascii=False, indent=2))
    faults = unaccounted(final, count_rows(csv_file))
    verified = try_manage("verify")
    print(f"{verified.stdout}{verified.stderr}".strip())
    if verified.returncode:
        faults.append("manage.py verify found a fault (above)")
    for fault in faults:
        print(f"NOT ACCOUNTED FOR: {fault}", file=sys.stderr)
    if not faults:
        print("Every row is accounted for.")
    return 1 if faults else 0


def create(csv_file: Path, message: str) -> Report | None:
    """The started job's report, or None when the file was refused (the reasons are printed)."""
    done = try_manage(
        *("create_job", "--action", "send_text", "--csv", str(csv_file)),
        *("--param", f"content={message}", "--name", f"demo: {csv_file.name}"),
        # A run of its own each time, also on a database that is kept.
        *("--idempotency-key", f"demo-{secrets.token_hex(8)}", "--start", "--json"),
    )
    if done.returncode:
        # The reasons in words; the same as JSON would only repeat them.
        print((done.stderr or done.stdout).strip(), file=sys.stderr)
        return None
    report: Report = json.loads(done.stdout)
    return report


def fetch(job_id: Any) -> Report:
    out = io.StringIO()
    call_command("job_report", str(job_id), "--json", stdout=out)
    report: Report = json.loads(out.getvalue())
    return report


def watch(job_id: Any, workers: Child, logs: Path) -> Report:
    """Shows progress until nothing of the job moves by itself any more."""
    show = _bar() if sys.stdout.isatty() else _lines()
    next(show)
    last, moved_at = None, time.monotonic()
    try:
        while True:
            report = fetch(job_id)
            show.send(report)
            if report["status"] not in _MOVING:
                return report
            seen = (report["status"], report["items"])
            if seen != last:
                last, moved_at = seen, time.monotonic()
            if not workers.running:
                raise LocalStackError(f"The stack has ended:\n{tail(logs / 'stack.log')}")
            if time.monotonic() - moved_at > _STALL_SECONDS:
                raise LocalStackError(
                    f"The job has not moved for {_STALL_SECONDS:.0f} s; status "
                    f"{report['status']}, reason {report['reason']!r}, items {report['items']}:\n"
                    f"{tail(logs / 'stack.log')}"
                )
            time.sleep(0.5)
    finally:
        show.close()


def _settled(report: Report) -> tuple[int, int]:
    items = report["items"]
    return items["confirmed"] + items["failed"] + items["abandoned"], items["total"]


def _line(report: Report) -> str:
    done, total = _settled(report)
    items = report["items"]
    rate = report["rate"]["achieved_per_min"]
    return (
        f"{report['status']:<10} {done}/{total}  confirmed {items['confirmed']}, "
        f"failed {items['failed']}, waiting {items['submitted']}"
        + (f", {rate:.0f}/min" if rate else "")
    )


def _bar() -> Generator[None, Report, None]:
    try:
        while True:
            report = yield
            done, total = _settled(report)
            cells = _BAR_CELLS * done // total if total else 0
            bar = "█" * cells + "░" * (_BAR_CELLS - cells)
            sys.stdout.write(f"\r\x1b[K{bar} {_line(report)}")
            sys.stdout.flush()
    finally:
        sys.stdout.write("\n")
        sys.stdout.flush()


def _lines() -> Generator[None, Report, None]:
    """For a log: a line when something changed, at most one in two seconds and one at the end."""
    shown, shown_at = "", 0.0
    while True:
        report = yield
        line = _line(report)
        now = time.monotonic()
        if line != shown and (now - shown_at >= 2 or report["status"] not in _MOVING):
            print(line, flush=True)
            shown, shown_at = line, now


def describe(report: Report) -> str:
    items = report["items"]
    lines = [
        "",
        f"Job {report['id']}  {report['name']}",
        f"  status     {report['status']}" + (f" ({report['reason']})" if report["reason"] else ""),
        f"  items      {items['total']:,} in {len(report['shards'])} shards",
        *(f"  {state:<10} {items[state]:,}" for state in _STATES),
        f"  in doubt   {items['in_doubt']:,}",
        f"  rejected   {report['rejected_rows']:,} rows",
        *(
            f"  failure    {each['category']} {each['code']}: {each['count']:,}"
            for each in report["failures"]
        ),
        f"  ran        {report['started_at']} – {report['finished_at']}",
        "",
    ]
    return "\n".join(lines)


def unaccounted(report: Report, rows: int | None) -> list[str]:
    """What keeps the books from closing; empty when each row has its end."""
    items = report["items"]
    faults = []
    if report["status"] != "completed":
        faults.append(f"the job is {report['status']} (reason: {report['reason'] or 'none'})")
    done, total = _settled(report)
    if done != total or items["submitted"] or items["pending"]:
        faults.append(f"of {total} items {done} have ended: {items}")
    if rows is not None and rows != total + report["rejected_rows"]:
        faults.append(
            f"{rows} rows were read, {total} became items and "
            f"{report['rejected_rows']} were rejected"
        )
    return faults


def count_rows(path: Path) -> int:
    """Rows under the header that are not wholly empty, counted apart from the intake's own code."""
    from python_calamine import CalamineWorkbook

    if path.suffix.lower() == ".xlsx":
        rows = CalamineWorkbook.from_path(str(path)).get_sheet_by_index(0).to_python()
    else:
        rows = _csv_rows(path.read_bytes())
    filled = [row for row in rows if any(str(cell).strip() for cell in row)]
    return len(filled) - 1


def _csv_rows(data: bytes) -> list[list[Any]]:
    import csv

    wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    for encoding in ("utf-16",) if wide else ("utf-8-sig", "gb18030"):
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        head = text.splitlines()[0]
        delimiter = max(",;\t", key=head.count)
        return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    raise LocalStackError("The file is none of UTF-8, UTF-16 and GB18030.")
