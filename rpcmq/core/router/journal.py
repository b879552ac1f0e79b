"""The last rare events of each message, for the log line of an internal error that happens while it is handled.

The straight path (accepted, delivered, answered) is not written down: it would cost each message, and the tables tell
it while the message is there. What is written down is the rest: taken back, delivered again, dropped, ended otherwise
than by an answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

__all__ = ["MAX_ENTRIES", "Journal"]

#: Entries of all keys together; the oldest are forgotten. Some 200 bytes each.
MAX_ENTRIES = 2000


class Journal:
    """A bounded journal of (when, key, event, whose process it was about)."""

    __slots__ = ("_entries",)

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._entries: deque[tuple[float, bytes, str, str]] = deque(maxlen=max_entries)

    def __len__(self) -> int:
        return len(self._entries)

    def note(self, now: float, key: bytes, event: str, identity: str = "") -> None:
        """Write down ``event`` of the message ``key``: a text that is there already, for this is called in bursts."""
        self._entries.append((now, key, event, identity))

    def story(self, now: float, key: bytes) -> Iterator[str]:
        """The events of ``key``, the oldest first, a line each."""
        for when, of, event, identity in self._entries:
            if of == key:
                yield f"{now - when:.3f} s ago: {event}" + (f" ({identity})" if identity else "")
