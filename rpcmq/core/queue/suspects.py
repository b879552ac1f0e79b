"""Items that were lost with their worker come back one after the other: one of them may have killed it.

If they came together, those beside the one that kills would be lost with it again, and be dead as well.
"""

from __future__ import annotations

from math import inf

__all__ = ["Suspects"]

#: Seconds from one to the next: whoever kills its worker at once does so alone among them.
_APART = 1.0


class Suspects:
    """The times at which the lost items of one queue come back."""

    def __init__(self) -> None:
        self._last = -inf

    def delay(self, now: float, lease: float) -> float:
        """Seconds until the next one comes back: when its lease is over, or up to a lease later if they are many."""
        self._last = max(now + lease, min(self._last + _APART, now + 2 * lease))
        return self._last - now
