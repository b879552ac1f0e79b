"""Streams, checked in a history: items in order, none doubled or left out, and none after the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from rpcmq.drill.history import Event

__all__ = ["StreamChecks"]


class StreamChecks:
    """Looks at events in the order of their time.

    Args:
        violated: called with (check, text).
    """

    def __init__(self, violated: Callable[[str, str], None]) -> None:
        self._violated = violated
        #: The items that each stream has, if all are sent.
        self._length: dict[str, int] = {}
        self._read: Counter[str] = Counter()
        self._ended: set[str] = set()

    def see(self, event: Event) -> None:
        """The next event."""
        if event.what == "submit" and event.fields["verb"] == "stream":
            self._length[event.id] = event.fields["items"]
        elif event.what == "item":
            self._item(event)
        elif event.what == "end" and event.id in self._length:
            self._ended.add(event.id)
            read, length = self._read[event.id], self._length[event.id]
            if event.fields["outcome"] == "ok" and read != length:
                self._violated("items", f"stream {event.id} ended in order after {read} of {length} items")

    def _item(self, event: Event) -> None:
        number, of, expected = event.fields["number"], event.fields["of"], self._read[event.id]
        if of != event.id or event.id not in self._length:
            self._violated("misrouted", f"{event.process} got an item of {of} for {event.id}")
        if event.id in self._ended:
            self._violated("items", f"stream {event.id} has ended, and item {number} came")
        elif number != expected:
            self._violated("items", f"stream {event.id}: item {number} came in the place of item {expected}")
        self._read[event.id] = number + 1

    def finish(self) -> None:
        """The history is complete."""
