"""The record of every target that took effect; in memory, and in a file if one is named."""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Effect(NamedTuple):
    """One target on which a call took effect."""

    seq: int
    #: seconds since the epoch
    ts: float
    guid: str
    operation: str
    target: str
    content: str
    request_id: str
    msg_id: str
    server_id: str
    tags: tuple[str, ...] = ()

    def line(self) -> str:
        """The effect as one line of JSON."""
        return json.dumps(self._asdict(), ensure_ascii=False) + "\n"


class Record:
    """Append-only. A file keeps it across a kill: each line is written before the answer is."""

    def __init__(self, path: Path | None = None) -> None:
        self.effects: list[Effect] = []
        self._file: int | None = None
        if path is not None:
            self.effects.extend(_read(path))
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            self._close_last_line()
        self._next_seq = self.effects[-1].seq + 1 if self.effects else 1

    def _close_last_line(self) -> None:
        """A killed process may have left half a line; what follows must not join it."""
        assert self._file is not None
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")

    @property
    def next_seq(self) -> int:
        """The number of the next effect; numbers go on after a reset, so ids stay unique."""
        return self._next_seq

    def append(self, effect: Effect) -> None:
        self.effects.append(effect)
        self._next_seq = effect.seq + 1
        if self._file is not None:
            os.write(self._file, effect.line().encode())

    def lines(self, since: int, chunk: int = 1000) -> Iterator[bytes]:
        """The effects after `since` as chunks of JSON lines; later ones are not waited for."""
        start = bisect_right(self.effects, since, key=lambda effect: effect.seq)
        end = len(self.effects)
        for at in range(start, end, chunk):
            part = self.effects[at : min(at + chunk, end)]
            yield "".join(effect.line() for effect in part).encode()

    def clear(self) -> None:
        self.effects = []
        if self._file is not None:
            os.ftruncate(self._file, 0)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _read(path: Path) -> Iterator[Effect]:
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                row = json.loads(line)
                yield Effect(**{**row, "tags": tuple(row.get("tags", ()))})
            except (ValueError, TypeError):
                continue  # half a line, cut off by a kill: its answer never left either
