"""Casts that full queues refused: kept by destination, in order, and offered again until the router takes them."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from rpcmq.core.process.retained_casts import by_sequence
from rpcmq.errors import CallError
from rpcmq.wire import KEY, address_of, size_of

__all__ = ["FullQueue", "RefusedCasts"]


class FullQueue:
    """Casts waiting for one destination.

    Attributes:
        waiting: casts by key that are to be offered (again).
        offered: casts by key that were offered again, and are neither acknowledged nor refused again.
        size_bytes: of both.
        text, details: why the last one was refused, in the router's words.
    """

    __slots__ = ("details", "offered", "size_bytes", "text", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[bytes, bytes] = {}
        self.offered: dict[bytes, bytes] = {}
        self.size_bytes = 0
        self.text = ""
        self.details: dict[str, Any] = {}

    @property
    def casts(self) -> int:
        """Number of casts, waiting or offered again."""
        return len(self.waiting) + len(self.offered)


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

    def is_waiting(self, message: bytes) -> bool:
        """Return whether ``message`` is to be offered (again)."""
        queue = self.queues.get(address_of(message))
        return queue is not None and message[KEY] in queue.waiting

    def put_back(self, message: bytes, error: CallError) -> None:
        """Put back ``message``, refused by its full queue."""
        address = address_of(message)
        queue = self.queues.get(address)
        if queue is None:
            queue = self.queues[address] = FullQueue()
        if not queue.text or "limit_value" in error.details:
            queue.text, queue.details = str(error), error.details
        self._add(queue, message)

    def wait_behind(self, message: bytes, address: bytes) -> bool:
        """Queue ``message`` behind others that wait for ``address``; return False if there are none."""
        queue = self.queues.get(address)
        if queue is None or not queue.waiting:
            return False
        self._add(queue, message)
        return True

    def _add(self, queue: FullQueue, message: bytes) -> None:
        queue.waiting[message[KEY]] = message
        offered = queue.offered.pop(message[KEY], None)
        if offered is None:
            self._count(queue, 1, size_of(message))
        else:
            # It may be in another format now.
            self._count(queue, 0, size_of(message) - size_of(offered))

    def _count(self, queue: FullQueue, casts: int, size_bytes: int) -> None:
        queue.size_bytes += size_bytes
        self.casts += casts
        self.size_bytes += size_bytes

    def in_order(self) -> list[bytes]:
        """Return all waiting casts, in order for each destination."""
        waiting: list[bytes] = []
        for queue in self.queues.values():
            # One in flight when an earlier one was refused may have been queued after later ones.
            waiting += sorted(queue.waiting.values(), key=by_sequence)
        return waiting

    def offer(self, message: bytes) -> None:
        """Let ``message``, which is sent again, wait no longer."""
        queue = self.queues[address_of(message)]
        queue.offered[message[KEY]] = message
        queue.waiting.pop(message[KEY], None)

    def forget(self, message: bytes) -> None:
        """Forget ``message`` if it was offered again: its queue has taken it, or it is not offered any more."""
        address = address_of(message)
        queue = self.queues.get(address)
        offered = queue.offered.pop(message[KEY], None) if queue is not None else None
        if queue is None or offered is None:
            return
        self._count(queue, -1, -size_of(offered))
        if not queue.casts:
            del self.queues[address]

    def recount(self, sent: Container[bytes], queued: Container[bytes]) -> None:
        """Count all anew, after a change that may be incomplete.

        Args:
            sent: keys of the casts that were sent and not acknowledged.
            queued: keys of the casts that are to be sent.
        """
        self.casts = self.size_bytes = 0
        for address, queue in list(self.queues.items()):
            known = queue.offered | queue.waiting
            queue.waiting = {key: known[key] for key in queue.waiting if key not in queued}
            offered = (key for key in known if key in queued or key in sent)
            queue.offered = {key: known[key] for key in offered if key not in queue.waiting}
            queue.size_bytes = 0
            self._count(queue, queue.casts, sum(size_of(known[key]) for key in (*queue.waiting, *queue.offered)))
            if not queue.casts:
                del self.queues[address]

    def clear(self) -> list[bytes]:
        """Clear all; return the waiting casts."""
        waiting = [message for queue in self.queues.values() for message in queue.waiting.values()]
        self.queues.clear()
        self.casts = self.size_bytes = 0
        return waiting
