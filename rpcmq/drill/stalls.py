"""Stalls of the machine: a drill that did not run itself cannot expect others to be in time."""

from __future__ import annotations

from time import monotonic

import gevent

__all__ = ["StallWatch"]

#: Between two looks, and lateness of a look that shows a stall (seconds).
_EVERY = 0.1
_LATE = 0.3


class StallWatch:
    """Notes the times in which this process had no CPU.

    Attributes:
        stalls: their begin and end (monotonic seconds).
    """

    def __init__(self) -> None:
        self.stalls: list[tuple[float, float]] = []
        self._greenlet = gevent.spawn(self._watch)

    def _watch(self) -> None:
        while True:
            began = monotonic()
            gevent.sleep(_EVERY)
            now = monotonic()
            if now - began > _EVERY + _LATE:
                self.stalls.append((began, now))

    def close(self) -> None:
        """Stop."""
        self._greenlet.kill()
