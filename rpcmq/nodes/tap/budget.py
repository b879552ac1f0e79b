"""So many of something in a second."""

from __future__ import annotations

__all__ = ["Budget"]


class Budget:
    """An amount to spend: ``rate`` a second, and a second's worth at once.

    Args:
        least: that may be spent at once, however low the rate is.
        now: monotonic seconds.
    """

    def __init__(self, rate: float, now: float, least: float = 1.0) -> None:
        self._rate = rate
        self._left = self._most = max(least, rate)
        self._filled_at = now

    def has(self, now: float, amount: float = 1.0) -> bool:
        """Return whether ``amount`` may be spent."""
        self._left = min(self._most, self._left + max(0.0, now - self._filled_at) * self._rate)
        self._filled_at = max(now, self._filled_at)
        return self._left >= amount

    def spend(self, amount: float = 1.0) -> None:
        """Spend ``amount``."""
        self._left -= amount
