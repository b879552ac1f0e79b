"""Bytes that wait for a slow browser, within bounds."""

from __future__ import annotations

from collections import deque

__all__ = ["Outbox", "Total"]

#: Bytes of memory that an entry takes beside its own.
_ENTRY_BYTES = 100
#: Bytes that are sent at once.
_CHUNK_BYTES = 64 * 1024


class Total:
    """Bytes of all connections together.

    Attributes:
        most: the bound.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.size = 0


class Outbox:
    """Bytes to be sent over one connection.

    Args:
        most: bytes; with more, nothing that can be left out is put in.
        total: of all outboxes.
    """

    def __init__(self, most: int, total: Total) -> None:
        self.most = most
        self.size = 0
        self._total = total
        self._entries: deque[bytes] = deque()
        self._sending = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def room(self) -> int:
        """Bytes that may be put in before something has to wait, or is left out."""
        return max(0, min(self.most - self.size, self._total.most - self._total.size) - _ENTRY_BYTES)

    @property
    def is_over(self) -> bool:
        """Whether more waits than may, so that nothing more is to be asked for."""
        return self.size > self.most or self.total_is_over

    @property
    def total_is_over(self) -> bool:
        """Whether more waits for all browsers together than may."""
        return self._total.size > self._total.most

    def put(self, data: bytes) -> None:
        """Add ``data``."""
        self._entries.append(data)
        self._count(len(data) + _ENTRY_BYTES)

    def take(self) -> bytes:
        """Take out what is to be sent next: some entries, or a large one; empty: there is nothing.

        It counts until :meth:`sent`.
        """
        taken: list[bytes] = []
        size = 0
        while self._entries and (not taken or size + len(self._entries[0]) <= _CHUNK_BYTES):
            taken.append(self._entries.popleft())
            size += len(taken[-1])
        self._sending = size + len(taken) * _ENTRY_BYTES
        return b"".join(taken)

    def sent(self) -> None:
        """Release the bytes that were taken last: they have gone."""
        sent, self._sending = self._sending, 0
        self._count(-sent)

    def clear(self) -> None:
        """Forget everything, and what is being sent."""
        self._entries.clear()
        self._sending = 0
        self._count(-self.size)

    def _count(self, change: int) -> None:
        self.size += change
        self._total.size += change
