"""What the group robot is given: one message for all that is new, within its size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from django.urls import reverse
from django.utils.translation import gettext as _

from batches.domain.alerts import ALERTS, sentence
from batches.store.alerts import Unsent

#: bytes of UTF-8 that the robot takes as markdown
MOST_BYTES = 4096
_LINE_BYTES = 700
_NAME_LENGTH = 40
#: bytes kept for the line about what did not fit
_REST_BYTES = 600
#: they would make a link, a mention or a colour of somebody's words
_MARKUP = str.maketrans(dict(zip("[]()<>`*_#\n\r", "［］（）＜＞｀＊＿＃  ", strict=True)))


def message(alerts: Sequence[Unsent], *, public_url: str = "", label: str = "") -> str:
    """Markdown of at most MOST_BYTES: a line each, and what does not fit counted by kind."""
    where = f"【{_plain(label)}】" if label else ""
    head = _("%(where)s批量作业：%(count)s 条新告警") % {"where": where, "count": len(alerts)}
    lines = [f"**{head}**"]
    size = len(lines[0].encode())
    for number, alert in enumerate(alerts):
        line = _cut(f"> {_line(alert, public_url)}", _LINE_BYTES)
        size += len(line.encode()) + 1
        if size > MOST_BYTES - _REST_BYTES:
            lines.append(_rest(alerts[number:], public_url))
            break
        lines.append(line)
    return "\n".join(lines)


def _line(alert: Unsent, public_url: str) -> str:
    plain = {key: _plain_value(value) for key, value in alert.params.items()}
    said = sentence(alert.text, plain, _)
    if alert.closed_at is not None:
        said = _("（已解除）") + said
    if alert.job_id is not None:
        name = _plain(alert.job_name or "")[:_NAME_LENGTH]
        path = reverse("admin:job", args=[alert.job_id])
        return f"{_link(name, path, public_url)}：{said}"
    if alert.account_guid is not None:
        path = f"{reverse('admin:accounts')}?q={quote(alert.account_guid)}"
        return f"{said}{_link(_('账号'), path, public_url)}"
    return f"{said}{_link(_('告警'), reverse('admin:alerts'), public_url)}"


def _link(words: str, path: str, public_url: str) -> str:
    """A link, or without a public address the bare path to look up."""
    return f"[{words}]({public_url}{path})" if public_url else f"{words}（{path}）"


def _rest(alerts: Sequence[Unsent], public_url: str) -> str:
    counts = Counter(ALERTS[a.kind].label if a.kind in ALERTS else a.kind for a in alerts)
    kinds = _("、").join(
        _("%(what)s %(count)s 条") % {"what": _(label), "count": count}
        for label, count in counts.most_common()
    )
    said = _("另有 %(count)s 条：%(kinds)s。") % {"count": len(alerts), "kinds": kinds}
    link = _link(_("全部告警"), reverse("admin:alerts"), public_url)
    return f"> {_cut(said, _REST_BYTES // 2)}{link}"


def _plain_value(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(str(part)) for part in value]
    return _plain(value) if isinstance(value, str) else value


def _plain(text: str) -> str:
    return text.translate(_MARKUP)


def _cut(text: str, most: int) -> str:
    """At most so many bytes, cut between two characters."""
    data = text.encode()
    if len(data) <= most:
        return text
    return data[: most - len("…".encode())].decode(errors="ignore") + "…"
