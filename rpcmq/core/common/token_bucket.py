"""A token bucket: a rate of messages a second, with bursts of one second's worth."""

from __future__ import annotations

__all__ = ["TokenBucket"]


class TokenBucket:
    """Lets ``rate`` messages a second pass, and up to ``burst`` at once after a pause.

    Args:
        burst: None: as many as in a second, at least one.
    """

    __slots__ = ("_at", "_room", "_tokens", "rate")

    def __init__(self, rate: float, now: float, burst: float | None = None) -> None:
        self.rate = rate
        self._tokens = self._room = max(1.0, rate) if burst is None else burst
        self._at = now

    def take(self, now: float) -> float:
        """Take one; returns 0, or in how many seconds there will be one."""
        tokens = self._tokens
        if now != self._at:
            tokens = min(self._room, tokens + (now - self._at) * self.rate)
            self._at = now
        if tokens >= 1.0:
            self._tokens = tokens - 1.0
            return 0.0
        self._tokens = tokens
        return (1.0 - tokens) / self.rate
