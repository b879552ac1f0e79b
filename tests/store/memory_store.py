"""Items in memory: a store without a disk, and the model with which the others are compared."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import NamedTuple

from rpcmq.store.contract import (
    KEPT_OVERHEAD,
    NOTHING,
    Bury,
    Change,
    Damaged,
    Done,
    Expire,
    Forget,
    Found,
    Incoming,
    Keep,
    Lane,
    Move,
    Note,
    Position,
    Postpone,
    Put,
    Recovered,
    Refuse,
    Release,
    Revive,
    Stored,
    Verdict,
)
from rpcmq.store.known_makers import KnownMakers

__all__ = ["MemoryStore"]


class _Item(NamedTuple):
    put: Put
    number: int
    #: None: it is ready.
    due: int | None
    state: bytes = b""


class _Lane:
    def __init__(self) -> None:
        self.last = 0
        #: By number, which only grow.
        self.items: dict[int, _Item] = {}

    def add(self, put: Put, due: int | None, state: bytes = b"") -> int:
        self.last += 1
        self.items[self.last] = _Item(put, self.last, due, state)
        return self.last

    def copy(self) -> _Lane:
        lane = _Lane()
        lane.last, lane.items = self.last, dict(self.items)
        return lane


class MemoryStore:
    """A store that ends with its process.

    Args:
        has_incoming: items are added to :attr:`incoming`.

    Attributes:
        incoming: by place.
    """

    def __init__(self, has_incoming: bool = False) -> None:
        self._has_incoming = has_incoming
        self.incoming: dict[int, Incoming] = {}
        self._lanes: dict[Lane, _Lane] = {}
        #: In the order in which they died: place -> (lane, time, item).
        self._dead: dict[int, tuple[Lane, int, _Item]] = {}
        self._deaths = 0
        self._ids: dict[tuple[str, bytes], bytes] = {}
        self._makers = KnownMakers()
        self._notes: dict[str, bytes] = {}
        self._results: dict[tuple[Lane, int], Keep] = {}
        self._uniques: dict[tuple[str, bytes], tuple[Lane, int]] = {}
        self._epoch = 0
        self.reopen()

    def copy(self) -> MemoryStore:
        """Another store with the same in it."""
        other = copy(self)
        other._lanes = {lane: each.copy() for lane, each in self._lanes.items()}
        other._dead = dict(self._dead)
        other._ids, other._notes, other.incoming = dict(self._ids), dict(self._notes), dict(self.incoming)
        other._results, other._uniques = dict(self._results), dict(self._uniques)
        other._makers = KnownMakers(self._makers.snapshot())
        return other

    def reopen(self) -> None:
        """Begin another life, with all that is there."""
        self._epoch += 1
        #: The content at the last opening.
        self.recovered = replace(self.recount(), notes=dict(self._notes))

    def recount(self) -> Recovered:
        """See :meth:`rpcmq.store.contract.Store.recount`."""
        lanes = {lane: [each.due for each in items.items.values()] for lane, items in self._lanes.items()}
        dead: dict[str, int] = {}
        for (queue, _), _, _ in self._dead.values():
            dead[queue] = dead.get(queue, 0) + 1
        size: dict[str, int] = {}
        results: dict[str, int] = {}
        for (queue, _), _, _, value in self._results.values():
            results[queue] = results.get(queue, 0) + len(value) + KEPT_OVERHEAD
        for lane, items in self._lanes.items():
            size[lane.queue] = size.get(lane.queue, 0) + sum(len(each.put.body) for each in items.items.values())
        for lane, _, item in self._dead.values():
            size[lane.queue] += len(item.put.body)
        return Recovered(
            self._epoch,
            {lane: dues.count(None) for lane, dues in lanes.items()},
            {lane: len(dues) - dues.count(None) for lane, dues in lanes.items()},
            dead,
            size,
            results,
            {},
            self._has_incoming,
        )

    def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        """See :meth:`rpcmq.store.contract.Store.apply`; it never fails."""
        return [self._do(change) for change in changes]

    def _do(self, change: Change) -> Verdict:
        match change:
            case Put():
                return self._put(change)
            case Done(lane, number, _):
                self._pop(lane, number)
            case Postpone(lane, number, due, state):
                items = self._lanes[lane].items if lane in self._lanes else {}
                if number in items:
                    items[number] = items[number]._replace(due=due, state=state)
            case Bury(lane, number, at, state):
                item = self._pop(lane, number)
                if item is not None:
                    self._deaths += 1
                    self._dead[self._deaths] = lane, at, item._replace(state=state)
            case Revive(lane, number, due, state):
                dead = self._unbury(lane, number)
                if dead is not None:
                    return Verdict(self._lanes[lane].add(dead.put, due, state))
            case Move(lane, number, to, due, state):
                item = self._pop(lane, number) or self._unbury(lane, number)
                if item is not None:
                    return Verdict(self._lane(to).add(item.put, due or None, state if due else b""))
            case Release() | Keep() | Expire() | Note():
                return self._do_beside(change)
            case Forget(lane, number):
                return Verdict(number if self._unbury(lane, number) is not None else 0)
            case Refuse():
                return self._refuse(change)
        return NOTHING

    def _do_beside(self, change: Release | Keep | Expire | Note) -> Verdict:
        """A change to what is kept beside the items."""
        match change:
            case Note(name, value) if value:
                self._notes[name] = value
            case Note(name, _):
                self._notes.pop(name, None)
            case Release(lane, number, _):
                self._uniques = {key: item for key, item in self._uniques.items() if item != (lane, number)}
            case Keep(lane, number):
                self._results[lane, number] = change
            case Expire(queue, until):
                results = self._results.items()
                over = [place for place, each in results if place[0].queue == queue and each.until <= until]
                return Verdict(sum(len(self._results.pop(place).value) + KEPT_OVERHEAD for place in over))
        return NOTHING

    def _put(self, put: Put) -> Verdict:
        if put.incoming and put.incoming not in self.incoming:
            return Verdict(is_known=True)
        verdict = self._known(put)
        if verdict.is_known:
            if not verdict.is_other:
                self.incoming.pop(put.incoming, None)
            return verdict
        if put.unique and (put.lane.queue, put.unique) in self._uniques:
            self.incoming.pop(put.incoming, None)
            return Verdict(is_known=True)
        if put.id:
            self._ids[put.lane.queue, put.id] = put.digest
        elif put.maker.producer and not put.incoming:
            self._makers.add(put.maker, put.at)
        self.incoming.pop(put.incoming, None)
        number = self._lane(put.lane).add(put, put.due or None)
        if put.unique:
            self._uniques[put.lane.queue, put.unique] = put.lane, number
        return Verdict(number)

    def result(self, lane: Lane, number: int) -> bytes:
        """See :meth:`rpcmq.store.contract.Store.result`."""
        kept = self._results.get((lane, number))
        return b"" if kept is None else kept.value

    def known(self, puts: Sequence[Put]) -> list[Verdict]:
        """See :meth:`rpcmq.store.contract.Store.known`."""
        return [self._known(put) for put in puts]

    def _known(self, put: Put) -> Verdict:
        if put.id:
            digest = self._ids.get((put.lane.queue, put.id))
            return Verdict(is_known=digest is not None, is_other=digest not in (None, put.digest))
        return Verdict(is_known=not put.incoming and put.maker in self._makers)

    def _refuse(self, refuse: Refuse) -> Verdict:
        lane, place, at, body, state = refuse
        incoming = self.incoming.pop(place, None)
        if incoming is None:
            return NOTHING
        put = Put(lane, body, incoming.at, 0, incoming.id, incoming.maker, incoming.digest)
        number = self._lane(lane).add(put, None)
        self._do(Bury(lane, number, at, state))
        return Verdict(number)

    def _lane(self, lane: Lane) -> _Lane:
        if lane not in self._lanes:
            self._lanes[lane] = _Lane()
        return self._lanes[lane]

    def _pop(self, lane: Lane, number: int) -> _Item | None:
        return self._lanes[lane].items.pop(number, None) if lane in self._lanes else None

    def _unbury(self, lane: Lane, number: int) -> _Item | None:
        for place, (of, _, item) in self._dead.items():
            if of == lane and item.number == number:
                del self._dead[place]
                return item
        return None

    # --- reading -----------------------------------------------------------------------------

    def read(self, lane: Lane, after: int, most: int, most_bytes: int) -> list[Stored | Damaged]:
        """See :meth:`rpcmq.store.contract.Store.read`."""
        items = self._lanes[lane].items if lane in self._lanes else {}
        numbers = list(items)
        found = (items[number] for number in numbers[bisect_right(numbers, after) :])
        ready = (self._stored(lane, each, Position(0, 0, each.number)) for each in found if each.due is None)
        return _first(ready, most, most_bytes)

    def read_due(self, lane: Lane, now: int, after: Position, most: int, most_bytes: int) -> list[Stored | Damaged]:
        """See :meth:`rpcmq.store.contract.Store.read_due`."""
        due = (
            self._stored(lane, item, position) for position, item in self._postponed(lane, after) if position.due <= now
        )
        return _first(due, most, most_bytes)

    def next_due(self, lane: Lane, after: Position) -> int:
        """See :meth:`rpcmq.store.contract.Store.next_due`."""
        return next((position.due for position, _ in self._postponed(lane, after)), 0)

    def _postponed(self, lane: Lane, after: Position) -> list[tuple[Position, _Item]]:
        found = [
            (Position(item.due, 0, item.number), item)
            for item in (self._lanes[lane].items.values() if lane in self._lanes else ())
            if item.due is not None and (item.due, 0, item.number) > after
        ]
        return sorted(found, key=lambda each: each[0])

    def read_dead(self, queue: str, after: Position, most: int, most_bytes: int) -> list[Stored | Damaged]:
        """See :meth:`rpcmq.store.contract.Store.read_dead`."""
        items = (
            self._stored(lane, item, Position(at, place, item.number))
            for place, (lane, at, item) in self._dead.items()
            if lane.queue == queue and place > after.place
        )
        return _first(items, most, most_bytes)

    def find(self, lane: Lane, number: int) -> Found | None:
        """See :meth:`rpcmq.store.contract.Store.find`."""
        for place, (of, at, item) in self._dead.items():
            if of == lane and item.number == number:
                return Found("dead", self._stored(lane, item, Position(at, place, number)))
        found = self._lanes[lane].items.get(number) if lane in self._lanes else None
        if found is None:
            return None
        if found.due is None:
            return Found("ready", self._stored(lane, found, Position(number=number)))
        return Found("postponed", self._stored(lane, found, Position(found.due, 0, number)))

    def read_incoming(self, most: int, most_bytes: int) -> list[Incoming]:
        """See :meth:`rpcmq.store.contract.Store.read_incoming`."""
        found: list[Incoming] = []
        for item in self.incoming.values():
            if len(found) >= most or most_bytes <= 0:
                break
            found.append(item)
            most_bytes -= len(item.message)
        return found

    @staticmethod
    def _stored(lane: Lane, item: _Item, position: Position) -> Stored:
        put = item.put
        return Stored(position, lane, item.number, put.at, put.id, put.maker, put.body, item.state)

    def close(self) -> None:
        """Nothing is to be done."""


def _first(items: Iterator[Stored], most: int, most_bytes: int) -> list[Stored | Damaged]:
    found: list[Stored | Damaged] = []
    for item in items:
        found.append(item)
        most_bytes -= len(item.body)
        if len(found) >= most or most_bytes <= 0:
            break
    return found
