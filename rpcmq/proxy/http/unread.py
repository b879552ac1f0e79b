"""Bytes that clients have yet to read, of all of them together."""

from __future__ import annotations

from time import monotonic
from typing import Protocol

__all__ = ["SMALL_BYTES", "Reader", "UnreadBytes"]

#: Pieces up to this size do not count: their number is bounded by that of the connections.
SMALL_BYTES = 16 * 1024
#: Seconds that a client has kept others from memory before it has to make room for a response that is only beginning.
_PATIENCE = 1.0


class Reader(Protocol):
    """A connection whose client reads."""

    def cut_off(self) -> None:
        """End the connection, whose client reads too slowly; called by another greenlet than the connection's."""


class UnreadBytes:
    """Counts the bytes that wait for clients to read, and cuts off the slowest ones where there is no room for more.

    The slowest client is the one that has taken longest over the piece that it is given.

    Args:
        most: bytes of all together.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        #: The one that has waited longest comes first: since when, and how much.
        self._writing: dict[Reader, tuple[float, int]] = {}
        self._streams: dict[Reader, int] = {}
        #: Bytes that wait now.
        self.total = 0
        #: Clients that were cut off.
        self.cut_off = 0

    def begin_write(self, reader: Reader, size: int) -> None:
        """Count ``size`` bytes that are being written; if these are too many, the slowest clients are cut off.

        Those of a stream are counted already.
        """
        self._writing[reader] = (monotonic(), 0 if reader in self._streams else size)
        self.total += self._writing[reader][1]
        while self.total > self._most and self._cut_slowest(0.0, but=reader):
            pass

    def end_write(self, reader: Reader) -> None:
        """Count them no more."""
        _, size = self._writing.pop(reader, (0.0, 0))
        self.total -= size

    def begin_stream(self, reader: Reader, sizes: tuple[int, int]) -> int:
        """Reserve room for a response that comes as a stream; return which of ``sizes`` there is, 0 if none.

        Args:
            sizes: bytes that may be on their way, much room being left or little. Streams leave a quarter to other
                responses.
        """
        large, small = sizes
        size = large if self.total + large <= self._most // 2 else small
        while self.total + size > self._most * 3 // 4:
            if not self._cut_slowest(_PATIENCE, but=reader):
                return 0
        self._streams[reader] = size
        self.total += size
        return size

    def end_stream(self, reader: Reader) -> None:
        """Give the room back."""
        self.total -= self._streams.pop(reader, 0)

    def _cut_slowest(self, patience: float, but: Reader) -> bool:
        slowest = next((each for each in self._writing if each is not but), None)
        if slowest is None or monotonic() - self._writing[slowest][0] < patience:
            return False
        self.end_write(slowest)
        self.end_stream(slowest)
        self.cut_off += 1
        slowest.cut_off()
        return True
