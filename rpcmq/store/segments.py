"""The segments of a lane: 100,000 items, or 64 MiB, in one table, and which of them are to be read no more.

A segment is filled once, in the order of its numbers. An item that ends or is postponed is a bit in memory, and part of
a row on disk, so that no row of an item is ever changed; a full segment of which all have ended is dropped as a whole.
"""

from __future__ import annotations

__all__ = ["SEGMENT_BYTES", "SEGMENT_ITEMS", "Segment"]

#: Items of a segment, and bytes of their bodies: it takes no more once it has as many of either.
SEGMENT_ITEMS, SEGMENT_BYTES = 100_000, 64 << 20


class Segment:
    """The items of one segment, by their numbers in the lane.

    Args:
        name: of its tables.
        first: its first number.
        size: items that it takes.
        most_bytes: of their bodies, after which it takes no more.
    """

    __slots__ = (
        "_ended", "_postponed", "count", "ended", "ended_bytes", "first", "most_bytes", "name", "postponed",
        "put_bytes", "size",
    )  # fmt: skip

    def __init__(self, name: int, first: int, size: int = SEGMENT_ITEMS, most_bytes: int = SEGMENT_BYTES) -> None:
        self.name = name
        self.first = first
        self.size = size
        self.most_bytes = most_bytes
        #: The items that were put, and of these: those that have ended, and those that are postponed.
        self.count = self.ended = self.postponed = 0
        #: Bytes of the bodies of those that were put, and of those that have ended.
        self.put_bytes = self.ended_bytes = 0
        self._ended = bytearray()
        self._postponed = bytearray()

    @property
    def next(self) -> int:
        """The number of the next item."""
        return self.first + self.count

    @property
    def is_full(self) -> bool:
        """Whether the next item goes to another segment."""
        return self.is_full_with(0, 0)

    def is_full_with(self, count: int, size: int) -> bool:
        """The same with so many more items, with so many bytes."""
        return self.count + count >= self.size or self.put_bytes + size >= self.most_bytes

    @property
    def ready(self) -> int:
        """The number of items that are ready."""
        return self.count - self.ended - self.postponed

    def add(self, count: int, size: int) -> None:
        """So many more items, with so many bytes."""
        self.count += count
        self.put_bytes += size
        missing = (self.count + 7 >> 3) - len(self._ended)
        self._ended += bytes(missing)
        self._postponed += bytes(missing)

    def is_open(self, number: int) -> bool:
        """Return whether there is an item of that number that has not ended."""
        at = number - self.first
        return 0 <= at < self.count and not self._ended[at >> 3] >> (at & 7) & 1

    def is_postponed(self, number: int) -> bool:
        """Return whether the item is postponed."""
        at = number - self.first
        return bool(self._postponed[at >> 3] >> (at & 7) & 1)

    def is_ready(self, number: int) -> bool:
        """Return whether the item is ready."""
        at = number - self.first
        return not (self._ended[at >> 3] | self._postponed[at >> 3]) >> (at & 7) & 1

    def next_ready(self, number: int) -> int:
        """The number of the first item that is ready, from ``number`` on; 0: there is none."""
        if not self.ready:
            return 0
        at = max(number - self.first, 0)
        while at < self.count:
            taken = self._ended[at >> 3] | self._postponed[at >> 3]
            if taken == 0xFF and not at & 7:
                at += 8
            elif taken >> (at & 7) & 1:
                at += 1
            else:
                return self.first + at
        return 0

    def end(self, number: int) -> bool:
        """The item has ended; return whether that is new."""
        at = number - self.first
        bit = 1 << (at & 7)
        if self._ended[at >> 3] & bit:
            return False
        self._ended[at >> 3] |= bit
        self.ended += 1
        if self._postponed[at >> 3] & bit:
            self._postponed[at >> 3] &= ~bit
            self.postponed -= 1
        return True

    def postpone(self, number: int) -> None:
        """The item, which has not ended, is postponed."""
        at = number - self.first
        bit = 1 << (at & 7)
        if not self._postponed[at >> 3] & bit:
            self._postponed[at >> 3] |= bit
            self.postponed += 1
