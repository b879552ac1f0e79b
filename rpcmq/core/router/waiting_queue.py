"""Messages that wait for a consumer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import takewhile
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["Queue", "Waiting"]


class Waiting(Protocol):
    """An entry of a queue."""

    key: bytes
    #: Counts arrivals: the smaller is the older.
    number: int
    #: The queue in which it waits.
    queue: Queue[Any] | None

    @property
    def size(self) -> int:
        """Bytes that it takes."""


R = TypeVar("R", bound=Waiting)


class Queue(Generic[R]):
    """Messages that wait, oldest first, bounded in number and bytes."""

    __slots__ = ("_waiting", "dropped", "name", "size_bytes")

    def __init__(self, name: str) -> None:
        self.name = name
        #: Bytes of all waiting messages; 0 only if there are none, since no message is empty.
        self.size_bytes = 0
        self.dropped: dict[str, int] = {}
        # By key; by the object where the key is taken: two queues may be merged.
        self._waiting: OrderedDict[bytes | R, R] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[R]:
        return iter(self._waiting.values())

    def __contains__(self, key: bytes) -> bool:
        """Return whether a message with ``key`` waits here."""
        return key in self._waiting

    def get(self, key: bytes) -> R | None:
        """The message with ``key`` that waits here."""
        return self._waiting.get(key)

    def has_room(self, size: int, max_messages: int, max_bytes: int) -> bool:
        """Return whether a message of ``size`` bytes fits under both bounds."""
        return len(self._waiting) < max_messages and self.size_bytes + size <= max_bytes

    def append(self, request: R) -> None:
        """Let ``request`` wait at the end."""
        request.queue = self
        self._waiting[request if request.key in self._waiting else request.key] = request
        self.size_bytes += request.size

    def requeue(self, request: R) -> None:
        """Put ``request`` back to the front: it had its turn and could not be delivered."""
        self.append(request)
        self._waiting.move_to_end(self._name(request), last=False)

    def put_back(self, request: R) -> None:
        """Put ``request`` back, behind those that are older: it had its turn and came back."""
        older = list(takewhile(lambda each: each.number < request.number, self._waiting.values()))
        self.requeue(request)
        for each in reversed(older):
            self._waiting.move_to_end(self._name(each), last=False)

    def head_number(self) -> int | None:
        """Arrival number of the oldest, None when empty."""
        for request in self._waiting.values():
            return request.number
        return None

    def popleft(self) -> R:
        """Remove and return the oldest."""
        _, request = self._waiting.popitem(last=False)
        self._taken(request)
        return request

    def remove(self, request: R) -> None:
        """Remove ``request``, wherever it stands."""
        del self._waiting[self._name(request)]
        self._taken(request)

    def count_dropped(self, reason: str) -> None:
        """Count a message dropped here, by reason."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    def _name(self, request: R) -> bytes | R:
        return request.key if self._waiting.get(request.key) is request else request

    def _taken(self, request: R) -> None:
        request.queue = None
        self.size_bytes -= request.size
