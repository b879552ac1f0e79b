"""The items that are due, read ahead: a window of each lane in memory, and the rest in the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf

from rpcmq.core.queue.port import Items, StorePort
from rpcmq.store.contract import Damaged, Lane, Position, Stored

__all__ = ["DueItems"]

#: Items of a lane that are read at once, and their bytes.
_PAGE, _PAGE_BYTES = 256, 4 << 20
#: In place of the time of the next item that is due: it is to be looked for.
_LOOK = 1


class DueItems:
    """Reads the items that are due, lane by lane, so that those of a lane without workers are in the way of no other.

    Args:
        postponed: the lanes in which some are.
        wall: turns monotonic seconds into milliseconds of the wall clock.
        has_room: whether a lane has so few in memory that more of it are to be read.
        became_due: called with each item.
        on_earlier: called when :meth:`next_deadline` may be earlier than it was.
    """

    def __init__(
        self, store: StorePort, postponed: Iterable[Lane], wall: Callable[[float], int],
        has_room: Callable[[Lane], bool], became_due: Callable[[Stored | Damaged], object],
        on_earlier: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        self._store = store
        self._wall = wall
        self._has_room = has_room
        self._became_due = became_due
        self._on_earlier = on_earlier
        self._lanes = {lane: _Place() for lane in postponed}
        #: The least time at which something is to be read (milliseconds of the wall clock); 0: never.
        self._next = _LOOK if self._lanes else 0

    def look(self, lane: Lane) -> None:
        """An item of ``lane`` was postponed, or there is room for more of it."""
        place = self._lanes.get(lane)
        if place is None:
            place = self._lanes[lane] = _Place()
        place.next = self._next = _LOOK
        self._on_earlier()

    def tick(self, now: float) -> None:
        """Read what is due."""
        until = self._wall(now)
        if not self._next or until < self._next:
            return
        for lane, place in self._lanes.items():
            if not place.is_reading and place.next and place.next <= until:
                if self._has_room(lane):
                    self._read(lane, place, until)
                else:
                    place.next = 0  # until there is room
        self._next = min(
            (place.next for place in self._lanes.values() if place.next and not place.is_reading), default=0
        )

    def next_deadline(self, now: float) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        return now + max(0.0, (self._next - self._wall(now)) / 1000) if self._next else inf

    def _read(self, lane: Lane, place: _Place, until: int) -> None:
        place.is_reading = True

        def take(items: Items) -> None:
            for item in items:
                place.read_to = item.position
                self._became_due(item)
            if len(items) < _PAGE:
                self._store.next_due(lane, place.read_to, know)
            else:
                know(until)

        def know(due: int) -> None:
            place.is_reading = False
            place.next = due
            if due:
                self._next = min(self._next or due, due)
                self._on_earlier()

        self._store.read_due(lane, until, place.read_to, _PAGE, _PAGE_BYTES, take)


class _Place:
    """A place among the items of a lane, up to which they were read."""

    def __init__(self) -> None:
        self.read_to = Position()
        #: The time at which the next one is due (milliseconds of the wall clock); 0: none is, or there is no room.
        self.next = _LOOK
        self.is_reading = False
