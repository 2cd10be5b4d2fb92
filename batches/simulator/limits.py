"""Sliding 60 s windows per account and address: always counted, enforced where limited."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

WINDOW_SECONDS = 60.0


@dataclass(slots=True)
class Window:
    """What took effect within the last 60 s, and the most that any such window ever held."""

    moments: deque[float] = field(default_factory=deque)
    total: int = 0
    refused: int = 0
    most: int = 0

    def count(self, now: float) -> int:
        """How many took effect within the 60 s before `now`."""
        moments = self.moments
        horizon = now - WINDOW_SECONDS
        while moments and moments[0] <= horizon:
            moments.popleft()
        return len(moments)

    def add(self, now: float) -> None:
        self.moments.append(now)
        self.total += 1
        self.most = max(self.most, self.count(now))

    def seconds_until_room(self, now: float, limit: int) -> int:
        """Whole seconds until one more would fit."""
        if len(self.moments) < limit or limit <= 0:
            return 1
        return max(1, int(self.moments[len(self.moments) - limit] + WINDOW_SECONDS - now) + 1)


@dataclass(slots=True)
class Limits:
    """The limits in force and the windows they are held against."""

    account_per_min: int | None = 60
    ip_per_min: int | None = 6000
    #: how a refusal is worded: `http_429`, or an error code in an HTTP 200
    refusal: str = "http_429"
    accounts: dict[str, Window] = field(default_factory=dict)
    addresses: dict[str, Window] = field(default_factory=dict)

    def grant(self, guid: str, address: str, targets: int, now: float) -> int:
        """How many of so many targets there is room for."""
        for window, limit in self._limited(guid, address):
            room = max(0, limit - window.count(now))
            if room < targets:
                window.refused += 1
                targets = room
        return targets

    def retry_after(self, guid: str, address: str, now: float) -> int:
        """Whole seconds until there is room for one more."""
        return max(
            (
                window.seconds_until_room(now, limit)
                for window, limit in self._limited(guid, address)
                if window.count(now) >= limit
            ),
            default=1,
        )

    def _limited(self, guid: str, address: str) -> list[tuple[Window, int]]:
        return [
            (windows.setdefault(key, Window()), limit)
            for windows, key, limit in (
                (self.accounts, guid, self.account_per_min),
                (self.addresses, address, self.ip_per_min),
            )
            if limit is not None
        ]

    def add(self, guid: str, address: str, now: float) -> None:
        """Count one target that took effect."""
        self.accounts.setdefault(guid, Window()).add(now)
        self.addresses.setdefault(address, Window()).add(now)

    def clear(self) -> None:
        """Forget the windows; the limits stay."""
        self.accounts.clear()
        self.addresses.clear()

    def stats(self, now: float) -> dict[str, object]:
        """Totals, current windows and maxima, per account and per address."""
        return {
            name: {
                key: {
                    "total": window.total,
                    "refused": window.refused,
                    "window": window.count(now),
                    "window_max": window.most,
                }
                for key, window in windows.items()
            }
            for name, windows in (("accounts", self.accounts), ("ips", self.addresses))
        }
