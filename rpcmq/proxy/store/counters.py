"""Counters of a store."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from rpcmq.proxy.store.contract import StoreStatistics

__all__ = ["Counters"]


@dataclass(slots=True)
class Counters:
    """The counters of :class:`~rpcmq.proxy.store.contract.StoreStatistics` that only grow."""

    hits: int = 0
    misses: int = 0
    stored: int = 0
    evicted: int = 0
    removed: int = 0
    failed: int = 0
    corrupt: int = 0
    disk_full: int = 0

    def looked_up(self, *, is_found: bool) -> None:
        """Count a look-up."""
        if is_found:
            self.hits += 1
        else:
            self.misses += 1

    def statistics(self, entries: int, size_bytes: int, max_bytes: int) -> StoreStatistics:
        """Return them with the size of the store."""
        return StoreStatistics(entries, size_bytes, max_bytes, **asdict(self))
