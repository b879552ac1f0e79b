"""Series of items, of which one runs at a time: the others wait in memory for the end of that one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from rpcmq.store.contract import Stored

__all__ = ["Series"]

#: Items that wait for others of their series, at the most: more wait in the lane, with all that is behind them.
_MOST_WAITING = 1000


class Series:
    """The series of one queue of which an item runs."""

    def __init__(self) -> None:
        self._running: set[bytes] = set()
        self._waiting: dict[bytes, deque[Stored]] = {}
        self._count = 0

    def __contains__(self, series: bytes) -> bool:
        """Whether an item of ``series`` runs."""
        return series in self._running

    @property
    def is_full(self) -> bool:
        """Whether no more items are to wait."""
        return self._count >= _MOST_WAITING

    @property
    def waiting(self) -> Iterator[Stored]:
        """The items that wait, in the order of each series."""
        return (item for row in self._waiting.values() for item in row)

    def wait(self, series: bytes, item: Stored, is_next: bool) -> None:
        """An item waits for the one that runs; ``is_next``: in front of the others."""
        row = self._waiting.setdefault(series, deque())
        if is_next:
            row.appendleft(item)
        else:
            row.append(item)
        self._count += 1

    def begin(self, series: bytes) -> None:
        """An item of ``series`` runs."""
        self._running.add(series)

    def end(self, series: bytes) -> Stored | None:
        """It runs no more; remove and return the one that is next."""
        self._running.discard(series)
        row = self._waiting.get(series)
        if row is None:
            return None
        item = row.popleft()
        self._count -= 1
        if not row:
            del self._waiting[series]
        return item

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
