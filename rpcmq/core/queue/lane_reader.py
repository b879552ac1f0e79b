"""The items of a lane that are ready, read ahead: a window in memory, and the rest on disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from rpcmq.core.queue.port import Items, StorePort
from rpcmq.store.contract import Damaged, Lane, Stored

__all__ = ["LaneReader"]

#: Items and bytes that are read at once, and items below which more is read.
_WINDOW, _WINDOW_BYTES, _LOW = 256, 4 << 20, 128


class LaneReader:
    """Reads one lane in the order of its numbers.

    A new item goes straight into the window where everything before it was read; else it is read when its turn comes.

    Args:
        after: the number after which it begins.
        until: the last number that it reads; None: it goes on with new items.
        has_more: whether there may be items already.
    """

    def __init__(
        self, store: StorePort, lane: Lane, after: int = 0, until: int | None = None, has_more: bool = True
    ) -> None:
        self._store = store
        self._lane = lane
        self._read_to = after
        self._until = until
        self._has_more = has_more
        #: The greatest number that was heard of.
        self._known = after
        self._is_reading = False
        #: Grows when it begins elsewhere.
        self._life = 0
        #: The items that were read, the next one first.
        self.items: deque[Stored | Damaged] = deque()
        self._bytes = 0
        #: Called when what was to be read was read.
        self.on_read: Callable[[], object] = lambda: None

    def end_at(self, until: int) -> None:
        """Read up to the number ``until``, instead of a greater one that no item has yet."""
        self._until = until

    def begin_after(self, number: int) -> None:
        """Begin after ``number``, instead of a greater one that no item has yet."""
        self._read_to = self._known = number
        # What is being read begins after the other one, and would have everything before that taken for read.
        self._life += 1

    def accepted(self, item: Stored) -> None:
        """A new item was put."""
        if self._comes_next(item.number) and len(self.items) < _WINDOW and self._bytes < _WINDOW_BYTES:
            self._read_to = item.number
            self._add(item)
        else:
            self._has_more = True

    def skipped(self, number: int) -> None:
        """A new item was put that is postponed: it is not read here."""
        if self._comes_next(number):
            self._read_to = number

    def may_have_more(self) -> None:
        """An item was put whose number is not known: it is looked for."""
        self._has_more = True

    def _comes_next(self, number: int) -> bool:
        """Note ``number``; whether everything before it was read."""
        self._known = max(self._known, number)
        return number == self._read_to + 1 and not self._is_reading and not self._has_more

    @property
    def head(self) -> Stored | Damaged | None:
        """The next item; None: there is none, or it is still being read."""
        if len(self.items) < _LOW:
            self._read_ahead()
        return self.items[0] if self.items else None

    @property
    def is_at_end(self) -> bool:
        """Whether there is nothing more, now."""
        return not (self.items or self._has_more or self._is_reading)

    def pop(self) -> None:
        """The head was taken."""
        item = self.items.popleft()
        if isinstance(item, Stored):
            self._bytes -= len(item.body)

    def discard(self, numbers: set[int]) -> None:
        """These items are not in the lane any more."""
        items, self.items, self._bytes = self.items, deque(), 0
        for item in items:
            if item.number not in numbers:
                self._add(item)

    def _add(self, item: Stored | Damaged) -> None:
        self.items.append(item)
        if isinstance(item, Stored):
            self._bytes += len(item.body)

    def _read_ahead(self) -> None:
        if self._is_reading or not self._has_more or self._bytes >= _WINDOW_BYTES:
            return
        self._is_reading = True
        life, known = self._life, self._known
        self._store.read(
            self._lane, self._read_to, _WINDOW, _WINDOW_BYTES, lambda items: self._take(items, life, known)
        )

    def _take(self, items: Items, life: int, known: int) -> None:
        """Take what was read when ``known`` was the greatest number."""
        self._is_reading = False
        if life == self._life:
            self._add_read(items, known)
        self.on_read()

    def _add_read(self, items: Items, known: int) -> None:
        if not items:
            self._has_more = False
            self._read_to = max(self._read_to, known)  # what was between has ended, or is postponed
        for item in items:
            if self._until is not None and item.number > self._until:
                self._has_more = False
                return
            self._read_to = item.number
            self._add(item)
