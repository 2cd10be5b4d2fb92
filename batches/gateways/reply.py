"""Reading answers that may be anything: bytes to JSON object, text, id, seconds; never raises."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

#: A longer answer to a send is not an answer; it is not even parsed.
MAX_BODY_BYTES = 1 << 20
MAX_MESSAGE = 500
MAX_ID = 128
MAX_RETRY_AFTER = 24 * 3600.0
#: What PostgreSQL text cannot hold or a screen should not show: controls and lone surrogates.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_ID = re.compile(r"[\x21-\x7e]+")
_BOM = b"\xef\xbb\xbf"


def read_object(body: bytes) -> dict[str, object] | None:
    """The JSON object in `body`, or None where it is anything else.

    An object that names a key twice is none: which of the two would count?
    """
    if len(body) > MAX_BODY_BYTES:
        return None
    try:
        value = _DECODER.decode(body.removeprefix(_BOM).decode())
    except (ValueError, RecursionError):  # not UTF-8, not JSON, a number too long, too deep
        return None
    return value if isinstance(value, dict) else None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError
    return value


def _no_constant(_: str) -> object:
    raise ValueError


#: made once: `json.loads` with hooks would make one for each answer
_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)


def clean_text(value: object, limit: int = MAX_MESSAGE) -> str:
    """Text fit to be stored and shown, clipped; anything that is no text is empty."""
    return _UNPRINTABLE.sub("", value)[:limit].strip() if isinstance(value, str) else ""


def excerpt(body: bytes) -> str:
    """The beginning of an answer, for a person to look at."""
    return clean_text(body[: MAX_MESSAGE * 4].decode("utf-8", "replace"), 200)


def read_id(value: object) -> str:
    """An id as a string; empty where there is none.

    A clipped or damaged id would match nothing or, worse, something else, so it counts as none.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 < value < 10**MAX_ID:
            return ""
        value = str(value)
    if isinstance(value, str) and len(value) <= MAX_ID and _ID.fullmatch(value):
        return value
    return ""


def header(headers: Mapping[str, str], name: str) -> str:
    """A header by name, whatever its case."""
    value = headers.get(name)
    if value is None:
        wanted = name.lower()
        value = next((text for key, text in headers.items() if key.lower() == wanted), "")
    return value


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that `Retry-After` asks to wait; a date counts from the answer's own `Date`."""
    text = header(headers, "Retry-After").strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", text):
        return min(float(text), MAX_RETRY_AFTER)
    try:
        seconds = (
            parsedate_to_datetime(text) - parsedate_to_datetime(header(headers, "Date"))
        ).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)
