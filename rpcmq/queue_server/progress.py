"""The movement of the items of one queue: waiting and working times, and when one moved last."""

from __future__ import annotations

from typing import Any

from rpcmq.histogram import Histogram
from rpcmq.store.contract import Stored

__all__ = ["Progress"]

#: Of so many items one is reported when it was begun, where many end. Items are begun in their order, or nearly.
_REPORTED = 8
#: Items that end within a second, up to which each is reported when it was begun.
_FEW = 200
_DAY = 86_400.0
_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


class Progress:
    """The progress of one queue.

    Attributes:
        waiting: from when an attempt could begin until it did: since the put, or since it was due (microseconds).
        working: what workers took for an attempt, by their own clocks (microseconds).
        whole: from the put of an item until it was done, with all its attempts and pauses (microseconds).
        moved: when an item was begun or has ended last (monotonic seconds).
    """

    def __init__(self, now: float) -> None:
        self.waiting, self.working, self.whole = Histogram(), Histogram(), Histogram()
        self.moved = now
        self._second, self._ended = 0, 0

    def is_reported(self, number: int) -> bool:
        """Return whether the worker is to report when it begins the item ``number``: all of them, unless many end."""
        return self._ended < _FEW or number % _REPORTED == 0

    def begun(self, now: float) -> None:
        """An item was begun."""
        self.moved = now

    def ended(self, now: float, wall: int, item: Stored, seconds: float, is_done: bool) -> None:
        """An attempt has ended.

        Args:
            wall: milliseconds of the wall clock.
            seconds: that the worker says it took.
        """
        self.moved = now
        if int(now) != self._second:
            self._second, self._ended = int(now), 0
        self._ended += 1
        microseconds = min(max(0.0, seconds), _DAY) * 1e6  # whatever the worker says
        self.waiting.record(1000.0 * (wall - max(item.at, item.position.due)) - microseconds)
        self.working.record(microseconds)
        if is_done:
            self.whole.record(1000.0 * (wall - item.at))

    def times(self) -> dict[str, dict[str, Any]]:
        """The histograms in a few figures (microseconds)."""
        found = {"waiting": self.waiting, "working": self.working, "whole": self.whole}
        return {name: _summary(each) for name, each in found.items() if each.count}


def _summary(times: Histogram) -> dict[str, Any]:
    quantiles = {name: times.quantile(q) for name, q in _QUANTILES.items()}
    return {"count": times.count, "sum": times.sum, **quantiles, "max": times.max}
