"""The delivery window of a subscriber, the events that wait for it, and the number of those that it has lost."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

from rpcmq.wire import Kind, address_of, pack

__all__ = ["NeighbourSubscriber", "Subscriber", "notices_by_topic"]

#: Topics of which losses are counted one by one for a neighbour, until it is told.
_MAX_LOST_TOPICS = 1000
_MAX_COUNT = (1 << 32) - 1


class Subscriber:
    """The delivery window and queue of one subscribing link.

    Attributes:
        pattern_bytes: of another router: an estimate of the memory of its patterns.
    """

    __slots__ = ("delivered", "dropped", "lost", "pattern_bytes", "queue", "size_bytes", "states", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        self.queue: deque[bytes] = deque()
        self.size_bytes = 0
        #: States that its patterns can add to the match of one event.
        self.states = 0
        self.delivered = self.pattern_bytes = 0
        self.dropped: Counter[str] = Counter()
        #: Events lost since the last LOST notice, by the name of the router that lost them; empty: this one.
        self.lost: Counter[bytes] = Counter()

    def lose(self, message: bytes) -> None:
        """Count the event ``message`` as lost here."""
        self.lost[b""] += 1

    def notices(self) -> Iterator[bytes]:
        """The LOST messages about the losses so far, each of which is told once."""
        lost, self.lost = self.lost, Counter()
        for router, count in lost.items():
            yield pack(Kind.LOST, min(count, _MAX_COUNT).to_bytes(4), method=router)

    def clear(self) -> None:
        """Drop the subscription's queue and window; credit for delivered events may still arrive."""
        self.queue.clear()
        self.size_bytes = 0
        self.lost.clear()


class NeighbourSubscriber(Subscriber):
    """The window and queue of another router, which is told the topics of the events that it has lost."""

    __slots__ = ()

    def lose(self, message: bytes) -> None:
        """Count the event ``message`` as lost here, by its address."""
        address = address_of(message)
        self.lost[address if address in self.lost or len(self.lost) < _MAX_LOST_TOPICS else b""] += 1

    def notices(self) -> Iterator[bytes]:
        """The LOST messages about the losses so far, one for each topic."""
        lost, self.lost = self.lost, Counter()
        return notices_by_topic(lost)


def notices_by_topic(lost: Counter[bytes]) -> Iterator[bytes]:
    """The LOST messages for another router about the events ``lost``, by their addresses."""
    for address, count in lost.items():
        yield pack(Kind.LOST, min(count, _MAX_COUNT).to_bytes(4), address=address)
