"""Casts that full queues refused: kept by destination, in order, and offered again until the router takes them."""

from __future__ import annotations

from typing import Any

from rpcmq.core.process.retained_casts import by_sequence
from rpcmq.errors import CallError
from rpcmq.wire import KEY, address_of, size_of

__all__ = ["FullQueue", "RefusedCasts"]


class FullQueue:
    """Casts waiting for one destination.

    Attributes:
        waiting: casts by key that are to be offered (again).
        casts, size_bytes: of those and of what was offered again and is not acknowledged.
        text, details: why the last one was refused, in the router's words.
    """

    __slots__ = ("casts", "details", "size_bytes", "text", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[bytes, bytes] = {}
        self.casts = self.size_bytes = 0
        self.text = ""
        self.details: dict[str, Any] = {}


class RefusedCasts:
    """All casts refused by full queues and not accepted since.

    Attributes:
        queues: by address.
        casts, size_bytes: in all of them.
    """

    def __init__(self) -> None:
        self.queues: dict[bytes, FullQueue] = {}
        self.casts = self.size_bytes = 0

    @property
    def waiting(self) -> int:
        """Number of casts to offer again."""
        return sum(len(queue.waiting) for queue in self.queues.values())

    def put_back(self, message: bytes, error: CallError) -> bool:
        """Put back ``message``, refused by its full queue; return False if it was put back already."""
        address = address_of(message)
        queue = self.queues.get(address)
        if queue is None:
            queue = self.queues[address] = FullQueue()
        if not queue.text or "limit_value" in error.details:
            queue.text, queue.details = str(error), error.details
        return self._add(queue, message)

    def wait_behind(self, message: bytes, address: bytes) -> bool:
        """Queue ``message`` behind others that wait for ``address``; return False if there are none."""
        queue = self.queues.get(address)
        return queue is not None and bool(queue.waiting) and self._add(queue, message)

    def _add(self, queue: FullQueue, message: bytes) -> bool:
        key = message[KEY]
        if key in queue.waiting:
            return False
        queue.waiting[key] = message
        self._count(queue, 1, size_of(message))
        return True

    def _count(self, queue: FullQueue, casts: int, size_bytes: int) -> None:
        queue.casts += casts
        queue.size_bytes += size_bytes
        self.casts += casts
        self.size_bytes += size_bytes

    def take_waiting(self) -> list[bytes]:
        """Take all waiting casts, in order for each destination, to offer them again."""
        taken: list[bytes] = []
        for queue in self.queues.values():
            # One in flight when an earlier one was refused may have been queued after later ones.
            taken += sorted(queue.waiting.values(), key=by_sequence)
            queue.waiting.clear()
        return taken

    def acknowledged(self, message: bytes) -> None:
        """Handle the acknowledgement of ``message``, which was offered again."""
        address = address_of(message)
        queue = self.queues.get(address)
        if queue is None or queue.casts <= len(queue.waiting):
            return  # it was on its way before its queue was known to be full
        self._count(queue, -1, -size_of(message))
        if not queue.casts:
            del self.queues[address]

    def clear(self) -> list[bytes]:
        """Clear all; return the waiting casts."""
        waiting = [message for queue in self.queues.values() for message in queue.waiting.values()]
        self.queues.clear()
        self.casts = self.size_bytes = 0
        return waiting
