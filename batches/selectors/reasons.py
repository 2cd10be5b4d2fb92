"""The answer to "why does it not move": a sentence, a cure, and where to go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from django.utils import timezone
from django.utils.formats import number_format
from django.utils.translation import gettext

from batches.domain.problems import Names, Problem, Term

#: ok = it moves or is done; info = ends by itself; warn = a person is needed; error = broken
Level = Literal["ok", "info", "warn", "error"]


@dataclass(frozen=True, slots=True)
class Why:
    """`text` and `cure_text` are catalogue texts; `sentence` and `cure` are for the reader."""

    code: str
    text: str
    params: Mapping[str, object] = field(default_factory=dict)
    cure_text: str = ""
    #: name of the screen where the cure is done; None = on the job's own page
    cure_url_name: str | None = None
    level: Level = "ok"

    @property
    def sentence(self) -> str:
        return gettext(self.text) % {key: _shown(value) for key, value in self.params.items()}

    @property
    def cure(self) -> str:
        return gettext(self.cure_text) if self.cure_text else ""

    def __str__(self) -> str:
        return f"{self.sentence}{self.cure}"


def _shown(value: object) -> str:
    match value:
        case Term():
            return gettext(value)
        case Problem() | Names():
            return value.translated(gettext)
        case datetime():
            at, now = timezone.localtime(value), timezone.localtime()
            return f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%m-%d %H:%M}"
        case bool() | None:
            return ""
        case int():
            return str(number_format(value, force_grouping=True))
        case _:
            return str(value)


RECONCILE = "admin:reconcile"
#: of the job, the stuck ones alone
STUCK_SHARDS = "admin:job_shards"
ACCOUNTS = "admin:accounts"
GATEWAYS = "admin:batches_gateway_changelist"
