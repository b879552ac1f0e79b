"""The delivery window of a subscriber, and the events that wait for it."""

from __future__ import annotations

from collections import Counter, deque

__all__ = ["Subscriber"]


class Subscriber:
    """The delivery window and queue of one subscribing link."""

    __slots__ = ("delivered", "dropped", "lost", "queue", "size_bytes", "states", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        self.queue: deque[bytes] = deque()
        self.size_bytes = 0
        #: States that its patterns can add to the match of one event.
        self.states = 0
        self.delivered = 0
        self.dropped: Counter[str] = Counter()
        #: Events lost since the last LOST notice.
        self.lost = 0

    def clear(self) -> None:
        """Drop the subscription's queue and window; credit for delivered events may still arrive."""
        self.queue.clear()
        self.size_bytes = self.lost = 0
