"""Series of items, of which one runs at a time: the others wait in memory for the end of that one."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from math import inf

from rpcmq.store.contract import Stored

__all__ = ["Series"]

#: Items that wait for others of their series, at the most: more wait in the lane, with all that is behind them.
_MOST_WAITING = 1000


class Series:
    """The series of one queue of which an item runs, or may run."""

    def __init__(self) -> None:
        #: The monotonic time from which on none of its items runs for sure; inf: one runs.
        self._running: dict[bytes, float] = {}
        #: The items that wait, the higher priority and the older first.
        self._waiting: dict[bytes, list[Stored]] = {}
        self._count = 0
        #: The earliest time at which a series is over whose item was lost.
        self._next = inf

    def __contains__(self, series: bytes) -> bool:
        """Return whether an item of ``series`` runs, or may run."""
        return series in self._running

    @property
    def is_full(self) -> bool:
        """Whether no more items are to wait."""
        return self._count >= _MOST_WAITING

    @property
    def waiting(self) -> Iterator[Stored]:
        """The items that wait, in the order of each series."""
        return (item for row in self._waiting.values() for item in row)

    def wait(self, series: bytes, item: Stored) -> None:
        """An item waits for the one that runs."""
        # By number: what comes back, because it was not begun or is tried again, goes before what was put later.
        insort(self._waiting.setdefault(series, []), item, key=lambda each: (-each.lane.priority, each.number))
        self._count += 1

    def begin(self, series: bytes) -> None:
        """An item of ``series`` runs."""
        self._running[series] = inf

    def end(self, series: bytes) -> Stored | None:
        """It runs no more, unless it is lost; remove and return the one that is next."""
        if self._running.get(series, inf) < inf:
            return None
        self._running.pop(series, None)
        row = self._waiting.get(series)
        if row is None:
            return None
        item = row.pop(0)
        self._count -= 1
        if not row:
            del self._waiting[series]
        return item

    def lost(self, series: bytes, until: float) -> None:
        """The worker of its item is lost, and may go on with it ``until`` then."""
        if series in self._running:
            self._running[series] = until
            self._next = min(until, self._next)

    def over(self, now: float) -> list[Stored]:
        """End the series whose lost items run no more; remove and return the items that are next."""
        if now < self._next:
            return []
        over = [series for series, until in self._running.items() if until <= now]
        self._running |= dict.fromkeys(over, inf)
        self._next = min(self._running.values(), default=inf)
        return [item for item in map(self.end, over) if item is not None]

    @property
    def next_end(self) -> float:
        """The time at which :meth:`over` has something to end; inf: there is none."""
        return self._next

    def discard(self, keys: set[tuple[int, int]]) -> list[Stored]:
        """Remove and return the items of these priorities and numbers."""
        found = [item for item in self.waiting if (item.lane.priority, item.number) in keys]
        for item in found:
            series = next(name for name, row in self._waiting.items() if item in row)
            self._waiting[series].remove(item)
            if not self._waiting[series]:
                del self._waiting[series]
        self._count -= len(found)
        return found
