"""What logs, rows and screens must not repeat: secrets, and the credentials of an address."""

from __future__ import annotations

import re
from dataclasses import replace

from .outcomes import Accepted, Outcome, Refused

#: shorter texts are no secret, and would be struck out of ordinary words
SECRET_MIN = 6
MASK = "***"

_HOST = re.compile(r"[a-z]+://(?:[^/?#]*@)?([^/?#]*)", re.IGNORECASE)


def hide(text: str, secret: str) -> str:
    """A gateway may echo what it was sent; its token is nobody's to read.

    A text that was cut may end within the token: its beginning goes as well.
    """
    if len(secret) < SECRET_MIN:
        return text
    text = text.replace(secret, MASK)
    for length in range(len(secret) - 1, SECRET_MIN - 1, -1):
        if text.endswith(secret[:length]):
            return text[:-length] + MASK
    return text


def hide_in(outcome: Outcome, secret: str) -> Outcome:
    """An outcome whose words do not repeat the secret."""
    match outcome:
        case Accepted():
            return outcome
        case Refused():
            code, message = hide(outcome.code, secret), hide(outcome.message, secret)
            return replace(outcome, code=code, message=message)
        case _:
            return replace(outcome, message=hide(outcome.message, secret))


def host_of(url: str) -> str:
    """Host and port of an address, without the user and password that it may hold."""
    found = _HOST.match(url)
    return found.group(1) if found else ""
