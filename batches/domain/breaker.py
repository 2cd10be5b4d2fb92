"""The breaker of a job: a share of bad outcomes among the last ones."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When a shard stops (`streak`), and when its whole job does (the others)."""

    #: consecutive bad outcomes of one shard
    streak: int = 10
    #: share of bad outcomes among the last `window`, once there are `min_sample`
    ratio: float = 0.5
    window: int = 200
    min_sample: int = 50
    #: share of stopped shards
    shard_share: float = 0.5


class BreakerWindow:
    """The last `size` outcomes; open once `ratio` of at least `min_sample` of them are bad."""

    def __init__(self, *, ratio: float, size: int, min_sample: int) -> None:
        self.ratio = ratio
        self.min_sample = min_sample
        self._last: deque[bool] = deque(maxlen=size)
        self._bad = 0

    def adjust(self, *, ratio: float, size: int, min_sample: int) -> None:
        """Other thresholds from now on; the latest outcomes stay counted."""
        self.ratio = ratio
        self.min_sample = min_sample
        if size != self._last.maxlen:
            self._last = deque(self._last, maxlen=size)
            self._bad = sum(self._last)

    def clear(self) -> None:
        """Forget every outcome."""
        self._last.clear()
        self._bad = 0

    def add(self, *, bad: bool) -> bool:
        """Count one outcome; returns whether the breaker is open now."""
        if len(self._last) == self._last.maxlen:
            self._bad -= self._last[0]
        self._last.append(bad)
        self._bad += bad
        return len(self._last) >= self.min_sample and self._bad >= self.ratio * len(self._last)

    @property
    def bad(self) -> int:
        """Bad outcomes among the last ones."""
        return self._bad

    @property
    def sample(self) -> int:
        """How many outcomes are counted."""
        return len(self._last)
