"""The choice of the least busy consumer of a topic."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sized
from typing import Generic, Protocol, TypeVar

__all__ = ["ALONE", "NOWHERE", "LeastBusy"]

#: The ``level`` of a consumer in no level: it accepts no work, or has used up its credit.
NOWHERE = -1
#: The ``level`` of a topic's only ready consumer: there is nothing to compare.
ALONE = -2


class _Worker(Protocol):
    """A consumer, as far as its load is concerned."""

    credit: int
    #: Deliveries that it runs although they are not in flight any more.
    occupied: int
    stopping: bool
    #: The level at which :class:`LeastBusy` has filed it.
    level: int

    @property
    def in_flight(self) -> Sized: ...

    @property
    def link(self) -> _Link: ...

    @property
    def ready(self) -> bool: ...


W = TypeVar("W", bound=_Worker)


class LeastBusy(Generic[W]):
    """Ready consumers by load, for least-busy balancing; equally busy ones take turns.

    All operations are O(1) amortised, whatever the number of consumers. One that is alone (most
    topics have one consumer) stands in no level and costs nothing to move.
    """

    __slots__ = ("_levels", "_lowest", "_members", "alone")

    def __init__(self) -> None:
        self._members: dict[W, None] = {}
        #: The only one that takes work, if there is just one.
        self.alone: W | None = None
        self._levels: list[OrderedDict[W, None]] = []
        self._lowest = 0

    def place(self, consumer: W) -> None:
        """Add or remove ``consumer`` as it accepts work or not; then :meth:`move` it."""
        members = self._members
        if (consumer in members) != (consumer.link.is_responsive and not consumer.stopping):
            if consumer in members:
                del members[consumer]
            else:
                members[consumer] = None
            before, self.alone = self.alone, next(iter(members)) if len(members) == 1 else None
            for one in (before, self.alone):
                if one is not None:
                    self.move(one)
        self.move(consumer)

    def move(self, consumer: W) -> None:
        """Move ``consumer`` to the level of its load; not needed while it is ``ALONE``."""
        if consumer is self.alone:
            level = ALONE
        else:
            level = len(consumer.in_flight)
            if level >= consumer.credit or consumer.stopping or not consumer.link.is_responsive:
                level = NOWHERE
            else:
                level += consumer.occupied
        old = consumer.level
        if level == old:
            return
        levels = self._levels
        if old >= 0:
            del levels[old][consumer]
        consumer.level = level
        if level < 0:
            return
        while len(levels) <= level:
            levels.append(OrderedDict())
        levels[level][consumer] = None
        if level < self._lowest:
            self._lowest = level

    def pick(self) -> W | None:
        """Return the least busy consumer; among equals, the one that has had this load for longest."""
        alone = self.alone
        if alone is not None:
            return alone if len(alone.in_flight) < alone.credit else None
        levels = self._levels
        if not levels:
            return None
        for level in range(self._lowest, len(levels)):
            if levels[level]:
                self._lowest = level
                return next(iter(levels[level]))
        self._lowest = len(levels)
        return None

    def pick_other(self, suits: Callable[[W], bool]) -> W | None:
        """Return the least busy consumer of those that ``suits`` accepts; it is asked about few that it does not."""
        alone = self.alone
        if alone is not None:
            return alone if len(alone.in_flight) < alone.credit and suits(alone) else None
        return next((consumer for level in self._levels for consumer in level if suits(consumer)), None)

    def check(self) -> None:
        """Assert that each consumer is in its level. For tests: scans everything."""
        assert (self.alone is not None) == (len(self._members) == 1)
        filed = {consumer: level for level, row in enumerate(self._levels) for consumer in row}
        for consumer in self._members:
            assert consumer.link.is_responsive and not consumer.stopping
            if consumer is self.alone:
                assert consumer.level == ALONE and consumer not in filed
            elif consumer.ready:
                assert (
                    consumer.level == filed.pop(consumer) == len(consumer.in_flight) + consumer.occupied >= self._lowest
                )
            else:
                assert consumer.level == NOWHERE
        assert not filed


class _Link(Protocol):
    @property
    def is_responsive(self) -> bool: ...
