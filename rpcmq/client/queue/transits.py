"""Time that items which expire have spent on their way, and nobody has counted.

Routers and workers count while they have a message. While it lies in a socket of a process that is stopped, or in a
connection that stands, it has no clock. So a queue server says when it sends such an item, by its own monotonic clock,
and the deadline of the item's call, by that of the worker, comes later by all that was not counted. The clocks of two
machines begin at different times, but their difference stays the same, all but for their drift: by how much it is above
the least that was seen is a delay. (So RFC 6817, 3.4.2, has one-way delays over a base delay.)
"""

from __future__ import annotations

from collections import deque

from rpcmq.client.queue.protocol import WorkOrder

__all__ = ["Transits"]

#: The difference of two clocks may have grown by so many seconds in a second since it was seen.
_DRIFT = 0.0002
#: Queue servers of which it is remembered, and items that were handed back, at the most.
_SERVERS, _ITEMS = 256, 64


class Transits:
    """The items of one worker that expire, as they come."""

    def __init__(self) -> None:
        #: By queue server and its life, as a hash: the least difference, and when it was seen (monotonic seconds).
        self._least: dict[int, tuple[float, float]] = {}
        #: Hashes of those that were handed back.
        self._handed_back: deque[int] = deque(maxlen=_ITEMS)

    def has_expired(self, order: WorkOrder, deadline: float, now: float) -> bool:
        """Return whether nobody wants the item any more, so that it is to be handed back.

        The queue server, by whose clock that counts, says the last word: one that it gives again all the same shows
        that a clock has stood still meanwhile, as that of a machine that is suspended, and it is wanted.

        Args:
            deadline: of its call, by this process's clock; ``now`` is by that, too (monotonic seconds).
        """
        left = deadline - now - order.unwanted_left
        uncounted = self._uncounted(order, deadline, now) if order.sent else 0.0
        if left <= 0:
            return True
        if left > uncounted:
            return False
        item = hash((order.queue, order.id))
        if item in self._handed_back:
            self._least.pop(_server_of(order), None)
            return False
        self._handed_back.append(item)
        return True

    def _uncounted(self, order: WorkOrder, deadline: float, now: float) -> float:
        """The seconds that the item has spent where nobody counts; 0 for the first one of a queue server."""
        server, difference = _server_of(order), deadline - order.sent
        if (known := self._least.get(server)) is not None:
            least, seen = known
            uncounted = difference - least - _DRIFT * (now - seen)
            if uncounted > 0:
                return uncounted
        elif len(self._least) >= _SERVERS:
            self._least.clear()
        self._least[server] = difference, now
        return 0.0


def _server_of(order: WorkOrder) -> int:
    return hash((order.owner, order.fence[0]))
