"""The lanes of one queue: the item that is next, by priority and age, and how far items may be given."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from rpcmq.core.queue.lane_reader import LaneReader
from rpcmq.core.queue.port import StorePort
from rpcmq.store.contract import Damaged, Lane, Note, Stored, Verdict

__all__ = ["HORIZON", "Lanes"]

#: Numbers of a lane up to which items may be given, without saying so to the store first.
_AHEAD = 1000
#: Items that are set aside, at the most: more wait in their lane, with all that is behind them.
_MOST_ASIDE = 1000
#: Items of a lane in memory that are due, and their bytes, at which the next ones are read.
_FEW_DUE, _FEW_DUE_BYTES = 128, 2 << 20
#: The name of a lane's horizon in the store begins with this.
HORIZON = "horizon"


class Lanes:
    """The items of one queue that are in memory, or can be read.

    Args:
        horizons: the greatest number that may have been given in a former life, of each lane that there is.
        doubt_until: monotonic seconds until which workers may still run what was given in a former life.
        on_ready: called when there may be something to take.
    """

    def __init__(
        self, queue: str, store: StorePort, horizons: dict[Lane, int], doubt_until: float,
        on_ready: Callable[[], object],
    ) -> None:  # fmt: skip
        self._queue = queue
        self._store = store
        self._on_ready = on_ready
        self.doubt_until = doubt_until
        #: Called when more items of a lane that are due may be read.
        self.on_room_for_due: Callable[[Lane], object] = lambda lane: None
        #: By priority, the highest first.
        self._lanes: dict[int, _Lane] = {}
        for lane, horizon in sorted(horizons.items(), reverse=True):
            doubtful, reader = LaneReader(store, lane, until=horizon), LaneReader(store, lane, horizon)
            self._lanes[lane.priority] = self._woken(_Lane(reader, doubtful, horizon))

    def __iter__(self) -> Iterator[int]:
        """The priorities, the highest first."""
        return iter(self._lanes)

    def accepted(self, item: Stored) -> None:
        """A new item is in the store."""
        self._lane(item.lane).reader_of(item.number).accepted(item)

    def skipped(self, of: Lane, number: int) -> None:
        """A new item is in the store, which is due later."""
        self._lane(of).reader_of(number).skipped(number)

    def may_have_more(self, of: Lane) -> None:
        """An item of that lane is in the store whose number is not known."""
        lane = self._lane(of)
        lane.reader.may_have_more()
        if lane.doubtful is not None:
            lane.doubtful.may_have_more()

    def became_due(self, item: Stored) -> None:
        """A postponed item is due."""
        lane = self._lane(item.lane)
        lane.due.append(item)
        lane.due_bytes += len(item.body)

    def _lane(self, of: Lane) -> _Lane:
        lane = self._lanes.get(of.priority)
        if lane is None:
            lane = self._woken(_Lane(LaneReader(self._store, of, has_more=False), None, 0))
            self._lanes[of.priority] = lane
            self._lanes = dict(sorted(self._lanes.items(), reverse=True))
        return lane

    def _woken(self, lane: _Lane) -> _Lane:
        """Have the queue look again when something of ``lane`` was read."""
        for reader in (lane.reader, lane.doubtful):
            if reader is not None:
                reader.on_read = self._on_ready
        return lane

    def pop(self, now: float) -> Stored | Damaged | None:
        """Remove and return the item whose turn it is; None: there is none, or it is still being read."""
        is_over = now >= self.doubt_until
        if not is_over and sum(len(lane.aside) for lane in self._lanes.values()) >= _MOST_ASIDE:
            return None
        for priority, lane in self._lanes.items():
            if is_over and lane.due:
                return self._pop_due(priority, lane)
            if is_over and lane.doubtful is not None:
                if (item := lane.doubtful.head) is not None:
                    lane.doubtful.pop()
                    return item
                if not lane.doubtful.is_at_end:
                    continue  # what is still being read comes before the others
            if is_over and lane.aside:
                return lane.aside.pop(0)
            item = lane.reader.head
            if item is not None and self._may_be_given(priority, lane, item.number):
                lane.reader.pop()
                return item
        return None

    def has_room_for_due(self, lane: Lane) -> bool:
        """Return whether so few of the items of ``lane`` that are due are in memory that more are to be read."""
        due = self._lane(lane)
        return len(due.due) <= _FEW_DUE and due.due_bytes <= _FEW_DUE_BYTES

    def _pop_due(self, priority: int, lane: _Lane) -> Stored:
        had_room = self.has_room_for_due(Lane(self._queue, priority))
        item = lane.due.popleft()
        lane.due_bytes -= len(item.body)
        self._want_due(priority, had_room)
        return item

    def _discard_due(self, priority: int, lane: _Lane, numbers: set[int]) -> None:
        had_room = self.has_room_for_due(Lane(self._queue, priority))
        lane.due = deque(item for item in lane.due if item.number not in numbers)
        lane.due_bytes = sum(len(item.body) for item in lane.due)
        self._want_due(priority, had_room)

    def _want_due(self, priority: int, had_room: bool) -> None:
        lane = Lane(self._queue, priority)
        if not had_room and self.has_room_for_due(lane):
            self.on_room_for_due(lane)

    def set_aside(self, item: Stored) -> None:
        """Its turn came while workers may still run what was given in a former life: it waits for the end of that."""
        insort(self._lane(item.lane).aside, item, key=lambda each: each.number)

    @property
    def aside(self) -> Iterator[Stored]:
        """The items that were set aside."""
        return chain.from_iterable(lane.aside for lane in self._lanes.values())

    def _may_be_given(self, priority: int, lane: _Lane, number: int) -> bool:
        """Return whether the store knows that ``number`` may have been given; it is told in time, for many at once."""
        if number > lane.asked - _AHEAD // 2:
            lane.asked = asked = number + _AHEAD
            name = f"{HORIZON} {priority} {self._queue}"

            def known(verdicts: list[Verdict]) -> None:
                lane.horizon = asked
                self._on_ready()

            self._store.apply([Note(name, asked.to_bytes(8))], known)
        return number <= lane.horizon

    @property
    def due(self) -> Iterator[Stored]:
        """The items that are due."""
        return chain.from_iterable(lane.due for lane in self._lanes.values())

    def in_doubt(self, now: float, keys: set[tuple[int, int]]) -> set[tuple[int, int]]:
        """Select those of ``keys`` that a worker may run since a former life; of the postponed ones, the due ones."""
        if now >= self.doubt_until:
            return set()
        due = {(item.lane.priority, item.number) for item in self.due}
        former = {priority: lane.former for priority, lane in self._lanes.items()}
        return {(lane, number) for lane, number in keys if (lane, number) in due or number <= former.get(lane, 0)}

    def discard(self, keys: Iterable[tuple[int, int]]) -> list[Stored]:
        """Remove the items of these priorities and numbers; return those that were due."""
        by_priority: dict[int, set[int]] = {}
        for priority, number in keys:
            by_priority.setdefault(priority, set()).add(number)
        found: list[Stored] = []
        for priority, numbers in by_priority.items():
            lane = self._lanes.get(priority)
            if lane is None:
                continue
            lane.reader.discard(numbers)
            if lane.doubtful is not None:
                lane.doubtful.discard(numbers)
            found += [item for item in lane.due if item.number in numbers]
            self._discard_due(priority, lane, numbers)
            lane.aside = [item for item in lane.aside if item.number not in numbers]
        return found

    def heads(self) -> Iterator[Stored]:
        """The items of each lane that were read and are next; more is read where nothing was."""
        for lane in self._lanes.values():
            rows = (lane.due, lane.doubtful.items if lane.doubtful is not None else (), lane.aside, lane.reader.items)
            first = next((each for each in chain(*rows) if isinstance(each, Stored)), None)
            if first is not None:
                yield first


class _Lane:
    """One lane: the items that are next, and how far they may be given."""

    def __init__(self, reader: LaneReader, doubtful: LaneReader | None, horizon: int) -> None:
        self.reader = reader
        #: Items that may have run in a former life of the queue server, and may still do.
        self.doubtful = doubtful
        #: The store knows that items up to this number may have been given; and it was told so of these.
        self.horizon = self.asked = horizon
        #: Items up to this number may have been given in a former life of the queue server.
        self.former = horizon
        #: Items that are due, those that were read, and their bytes.
        self.due: deque[Stored] = deque()
        self.due_bytes = 0
        #: Items that wait until nothing of a former life runs any more, by their numbers.
        self.aside: list[Stored] = []

    def reader_of(self, number: int) -> LaneReader:
        """The reader that comes to the new item ``number``.

        The first one of this life tells how far a former life can have come: no further, wherever its horizon was.
        """
        if self.doubtful is not None and number <= self.former:
            self.former = number - 1
            self.doubtful.end_at(self.former)
            self.reader.begin_after(self.former)
        return self.reader
