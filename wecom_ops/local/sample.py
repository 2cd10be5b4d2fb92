"""The demo's accounts: those of examples/, and those that a file of the person's own names."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wecom_ops.local.instance import ROOT

ACCOUNTS = ROOT / "examples" / "accounts.csv"
CUSTOMERS = ROOT / "examples" / "customers.csv"
_PLAIN = "您好！门店周年庆本周六开始，凭此消息可领取礼品一份。"
_LEAST_RATE, _MOST_RATE = 600, 100_000
Row = dict[str, str]


@dataclass(frozen=True)
class Audience:
    """What a file asks of the demo: rows by account, and a message that each row can fill."""

    rows_by_account: Mapping[str, int]
    message: str


def audience_of(file: Path) -> Audience:
    """A first look, for the demo's own preparations; judging the file is create_job's business."""
    from batches.actions.checks import id_problem
    from batches.actions.registry import get_action
    from batches.domain.columns import ACCOUNT, NAME
    from batches.intake.cells import clean_id
    from batches.intake.source import FileRefusedError, source_of
    from batches.intake.table import open_table

    counts: Counter[str] = Counter()
    try:
        source = source_of(file.name, file.read_bytes())
        table = open_table(source, get_action("send_text").columns)
        position = table.header.mapping[ACCOUNT]
        for _number, cells in table.rows():
            if position < len(cells):
                account = clean_id(cells[position])
                if account and id_problem(account) is None:
                    counts[account] += 1
    except FileRefusedError:
        return Audience({}, _PLAIN)
    named = NAME in table.header.mapping
    return Audience(counts, f"{{name}}，{_PLAIN}" if named else _PLAIN)


def account_rows(audience: Audience | None = None) -> list[Row]:
    """Rows for load_accounts: the examples, and further accounts at the simulator as needed.

    Rates let each account of the audience end within half a minute.
    """
    with ACCOUNTS.open(encoding="utf-8-sig", newline="") as source:
        rows = list(csv.DictReader(source))
    if audience is None:
        return rows
    known = {row["guid"] for row in rows}
    template = rows[0]
    rows += [
        {**template, "guid": guid, "name": f"演示账号 {guid[-6:]}"}
        for guid in audience.rows_by_account
        if guid not in known
    ]
    for row in rows:
        wanted = audience.rows_by_account.get(row["guid"], 0) * 2 + 100
        rate = min(max(_LEAST_RATE, int(row["total_rate_per_min"]), wanted), _MOST_RATE)
        row["total_rate_per_min"] = str(rate)
    return rows


def write_rows(rows: list[Row], target: Path, gateway_url: str) -> None:
    with target.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows({**row, "gateway_url": gateway_url} for row in rows)


def simulator_limits(rows: list[Row]) -> tuple[int, int]:
    """Per account and per address and minute: as much as the accounts may send at most."""
    rates = [int(row["total_rate_per_min"]) for row in rows]
    return max(rates), max(6000, sum(rates))


def read_told(text: str) -> list[Row]:
    """load_accounts --json: an object per gateway and line."""
    return [json.loads(line) for line in text.splitlines() if line.strip()]
