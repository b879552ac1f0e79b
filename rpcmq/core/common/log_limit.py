"""Rate limits for log lines about events that can occur without bound.

``LogLimit`` counts occurrences for a later summary line; ``LineLimit`` lets the first few lines through at once.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["LineLimit", "LogLimit"]

K = TypeVar("K", bound=Hashable)

#: Delay of a key's first line after its first occurrence (seconds), so that a burst is one line.
_GATHER = 1.0
#: Period of its further lines (seconds).
_PERIOD = 60.0
#: Most keys with a line of their own in a period; the others share one at its end.
_KEYS = 50
#: Most lines for one key in a period, and for all keys.
_LINES = 5
_ALL_LINES = 50
#: Most keys tracked.
_MOST_KEYS = 1000


class LogLimit(Generic[K]):
    """Counts occurrences by key and says when a line is due.

    The first line of a key is due a second after its first occurrence; while there are more, one follows a minute. In
    a minute 50 keys have lines of their own.
    """

    def __init__(self) -> None:
        #: Occurrences not yet reported.
        self._untold: dict[K, int] = {}
        self._others = 0
        #: Keys with a line of their own in this period, and those of them whose first line is still to come.
        self._own: set[K] = set()
        self._fresh: list[K] = []
        self._first_at: float | None = None
        self._period_ends: float | None = None

    def add(self, now: float, key: K, count: int = 1) -> None:
        """``key`` has occurred ``count`` times more."""
        if self._period_ends is None:
            self._period_ends = now + _PERIOD
        if key not in self._own:
            if len(self._own) >= _KEYS:
                self._others += count
                return
            self._own.add(key)
            self._fresh.append(key)
            if self._first_at is None:
                self._first_at = now + _GATHER
        self._untold[key] = self._untold.get(key, 0) + count

    def next_deadline(self) -> float | None:
        """The time at which :meth:`due` has lines (monotonic seconds); None if there is nothing to report."""
        return self._period_ends if self._first_at is None else self._first_at

    def due(self, now: float) -> list[tuple[K | None, int]]:
        """The keys that a line is due for, and how many occurrences it tells; None stands for all other keys."""
        if self._period_ends is not None and now >= self._period_ends:
            return self._end_period(now)
        if self._first_at is None or now < self._first_at:
            return []
        self._first_at = None
        fresh, self._fresh = self._fresh, []
        return [(key, self._untold.pop(key)) for key in fresh]

    def _end_period(self, now: float) -> list[tuple[K | None, int]]:
        lines: list[tuple[K | None, int]] = list(self._untold.items())
        if self._others:
            lines.append((None, self._others))
        # Keys that still occur get their next line at the end of the next period.
        self._own = set(self._untold)
        self._untold = {}
        self._others = 0
        self._fresh.clear()
        self._first_at = None
        self._period_ends = now + _PERIOD if lines else None
        return lines


class LineLimit(Generic[K]):
    """Lets 5 lines of each key through in a minute, and 50 of all."""

    def __init__(self) -> None:
        self._kinds: dict[K, _Kind] = {}
        #: Start of the current period, and the number of lines of all kinds in it.
        self._period = 0.0
        self._lines = 0

    def __len__(self) -> int:
        return len(self._kinds)

    def passes(self, now: float, key: K) -> int | None:
        """Return the lines of ``key`` suppressed since the last one let through; None to suppress this one, too."""
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _MOST_KEYS:
                self._kinds.clear()
            kind = self._kinds[key] = _Kind()
        if now - self._period >= _PERIOD:
            self._period, self._lines = now, 0
        if kind.period != self._period:
            kind.period, kind.lines = self._period, 0
        if kind.lines >= _LINES or self._lines >= _ALL_LINES:
            kind.suppressed += 1
            return None
        kind.lines += 1
        self._lines += 1
        suppressed, kind.suppressed = kind.suppressed, 0
        return suppressed


class _Kind:
    __slots__ = ("lines", "period", "suppressed")

    def __init__(self) -> None:
        self.period = 0.0
        self.lines = self.suppressed = 0
