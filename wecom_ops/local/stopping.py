"""Signals that end a run, turned into one exception that unwinds everything started."""

from __future__ import annotations

import signal

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """A signal asked this run to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_code(self) -> int:
        return 128 + self.number


def raise_on_signals() -> None:
    """The first signal raises; further ones would only cut short the stopping that is under way."""

    def stop(number: int, _frame: object) -> None:
        for each in _ENDING:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(number)

    for number in _ENDING:
        signal.signal(number, stop)
