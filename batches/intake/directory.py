"""The accounts that a file may name, looked up in memory."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from batches.actions.base import ColumnSpec
from batches.domain.problems import Problem
from batches.domain.text import N_
from batches.models import Account

from .cells import clean_id, clean_text

#: Faults of the cell itself, more telling than "no such account".
_CELL_FAULTS = {"id_empty", "id_decimal", "value_scientific", "value_spreadsheet_error"}


@dataclass(frozen=True, slots=True)
class KnownAccount:
    """An account as intake needs it."""

    id: int
    guid: str
    name: str
    active: bool
    gateway_kind: str


class AccountDirectory:
    """Finds accounts by guid, else by exact name; every answer is remembered."""

    def __init__(self, accounts: Iterable[KnownAccount], spec: ColumnSpec) -> None:
        self._spec = spec
        self._by_guid: dict[str, list[KnownAccount]] = {}
        self._by_name: dict[str, list[KnownAccount]] = {}
        self._answers: dict[str, KnownAccount | Problem] = {}
        for account in accounts:
            self._by_guid.setdefault(account.guid, []).append(account)
            if account.name:
                self._by_name.setdefault(_name(account.name), []).append(account)

    def find(self, cell: str) -> KnownAccount | Problem:
        """The account that a cell names, or why there is none to use."""
        answer = self._answers.get(cell)
        if answer is None:
            answer = self._find(cell)
            # cells are foreign: a million different wrong ones must not fill the memory
            if len(self._answers) < 100_000:
                self._answers[cell] = answer
        return answer

    def _find(self, cell: str) -> KnownAccount | Problem:
        value = clean_id(cell)
        found = self._by_guid.get(value) or self._by_name.get(_name(cell)) or []
        usable = [account for account in found if account.active]
        if len(usable) == 1:
            return usable[0]
        values = {"value": value[:64]}
        if usable:
            if self._by_guid.get(value):
                return Problem(
                    "account_ambiguous",
                    N_("账号“%(value)s”在多个网关上都有，无法确定用哪一个。请停用其中不用的账号。"),
                    values,
                )
            return Problem(
                "account_name_ambiguous",
                N_("有多个账号都叫“%(value)s”。请在这一列改填账号标识（guid）。"),
                values,
            )
        if found:
            return Problem(
                "account_inactive",
                N_("账号“%(value)s”已停用。请先启用它（及其网关），或从文件中去掉这些行。"),
                values,
            )
        fault = self._spec.check(value)
        if fault and fault.code in _CELL_FAULTS:
            return fault
        return Problem(
            "account_unknown",
            N_("账号“%(value)s”不存在。请核对账号列，或先添加这个账号。"),
            values,
        )


def known_accounts() -> list[KnownAccount]:
    """Every account; one whose gateway is switched off counts as inactive."""
    rows = Account.objects.values_list(
        "id", "guid", "name", "is_active", "gateway__is_active", "gateway__kind"
    )
    return [
        KnownAccount(id_, guid, name, active and gateway_active, kind)
        for id_, guid, name, active, gateway_active, kind in rows.iterator()
    ]


def _name(text: str) -> str:
    return unicodedata.normalize("NFKC", clean_text(text))
