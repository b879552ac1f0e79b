"""A timing wheel: items filed by deadline in slots of a fixed width.

After the hashed timing wheels of Varghese and Lauck ("Hashed and Hierarchical Timing Wheels",
SOSP 1987), with a dict of slots for the wheel and a heap of slot numbers for its hand, so that an
idle program sleeps until the next deadline instead of turning the wheel. Adding and removing are
plain dict operations; only the first item of a slot pays for the heap.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from itertools import islice
from math import inf, nextafter
from typing import Any, Generic, TypeVar

__all__ = ["DeadlineWheel"]

T = TypeVar("T")

# A slot that saw this many younger ones made has had its rush of short-lived items: tidy it.
_YOUNG_SLOTS = 64


class DeadlineWheel(Generic[T]):
    """Items by deadline; none expires early, and none more than one ``resolution`` late.

    The slot is part of the interface, so that a hot path pays no method call to take an item out::

        slot = wheel.slot(deadline)
        slot[key] = item        # at once: an empty slot may be forgotten by any later call
        ...
        del slot[key]           # while the item has not been returned by expire()

    A key must be unique within its slot. Deadlines and ``now`` are seconds of one clock that starts
    at zero or above; a deadline in the past is due at the next ``expire``.

    Args:
        resolution: width of a slot in seconds.

    Raises:
        ValueError: ``resolution`` is not above zero.
    """

    __slots__ = ("_first", "_first_end", "_heap", "_old", "_rate", "_resolution", "_slots", "_young")

    def __init__(self, resolution: float = 0.01) -> None:
        if not 0 < resolution < inf:
            raise ValueError(f"resolution = {resolution!r}: expected a number of seconds above 0")
        self._resolution = resolution
        self._rate = 1 / resolution
        self._slots: dict[int, dict[Any, T]] = {}
        # Numbers of slots, soonest first; also of some that are gone, which are skipped.
        self._heap: list[int] = []
        # The soonest of them, and when it ends: that is asked far more often than it changes.
        self._first, self._first_end = -1, 0.0
        # Slots by age, for tidying. A slot is named with its number, which may be in use again.
        self._young: deque[tuple[int, dict[Any, T]]] = deque()
        self._old: deque[tuple[int, dict[Any, T]]] = deque()

    def slot(self, deadline: float) -> dict[Any, T]:
        """The slot for ``deadline`` (seconds): put the item into it at once.

        Raises:
            OverflowError, ValueError: the deadline is infinite or not a number.
        """
        number = int(deadline * self._rate)
        try:
            return self._slots[number]
        except KeyError:
            return self._add_slot(number)

    def next_deadline(self) -> float | None:
        """The time at which ``expire`` has something to return (seconds); None if the wheel is empty."""
        heap = self._heap
        while heap:
            number = heap[0]
            if self._slots.get(number):
                if number != self._first:
                    self._first, self._first_end = number, self._end(number)
                return self._first_end
            heappop(heap)
            self._slots.pop(number, None)
        return None

    def expire(self, now: float, at_most: int | None = None) -> list[T]:
        """Take out and return every item whose slot has wholly passed, in the order of the slots.

        Args:
            at_most: return no more than so many, and leave the others to the next time, which is due at once.

        They are no longer in their slots: code that also runs for expired items takes them out with
        ``slot.pop(key, None)``.
        """
        # Slot numbers are compared, not times: x -> int(x * rate) never decreases, so a greater
        # number proves that the deadline has passed, whatever was rounded.
        passed = int(now * self._rate)
        heap = self._heap
        due: list[T] = []
        while heap and heap[0] < passed:
            slot = self._slots.get(heap[0])
            if slot and at_most is not None and len(due) + len(slot) > at_most:
                due.extend(slot.pop(key) for key in list(islice(slot, at_most - len(due))))
                break
            self._slots.pop(heappop(heap), None)
            if slot:
                due.extend(slot.values())
                # Items may point to their slot; without this the two would keep each other alive.
                slot.clear()
        return due

    def __len__(self) -> int:
        """Number of items; takes time in proportion to the number of slots."""
        return sum(map(len, self._slots.values()))

    def _end(self, number: int) -> float:
        end = (number + 1) * self._resolution
        # Rounding may put the product a hair inside the slot, and a shell that sleeps until then
        # would find nothing to do and spin.
        while int(end * self._rate) <= number:
            end = nextafter(end, inf)
        return end

    def _add_slot(self, number: int) -> dict[Any, T]:
        self._tidy()
        slot: dict[Any, T] = {}
        self._slots[number] = slot
        self._young.append((number, slot))
        heappush(self._heap, number)
        return slot

    def _tidy(self) -> None:
        """Shrink slots far from their time that have lost most of their items.

        A dict keeps the size of its busiest moment. Most items leave early (a call is answered long
        before its deadline), so each slot made pays for looking at up to three others: one that has
        just ceased to be young, and the two longest not looked at.
        """
        if len(self._young) <= _YOUNG_SLOTS:
            return
        self._review(*self._young.popleft())
        for _ in range(min(2, len(self._old))):
            self._review(*self._old.popleft())
        if len(self._heap) > 2 * len(self._slots) + _YOUNG_SLOTS:
            self._heap[:] = self._slots
            heapify(self._heap)

    def _review(self, number: int, slot: dict[Any, T]) -> None:
        if self._slots.get(number) is not slot:
            return
        if not slot:
            del self._slots[number]
            return
        if slot.__sizeof__() > 512 + 128 * len(slot):
            # Callers hold this very dict; emptied and refilled it takes the size it needs.
            items = slot.copy()
            slot.clear()
            slot.update(items)
        self._old.append((number, slot))
