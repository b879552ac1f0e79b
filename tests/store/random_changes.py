"""Random changes of a store, and everything that can be read from one."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from rpcmq.store.contract import (
    Bury,
    Change,
    Damaged,
    Done,
    Expire,
    Forget,
    Keep,
    Lane,
    Maker,
    Move,
    Note,
    Position,
    Postpone,
    Put,
    Release,
    Revive,
    Store,
    Stored,
)

__all__ = ["Content", "RandomChanges", "content_of", "differences"]

_LANES = (Lane("billing", 0), Lane("billing", 5), Lane("images", 0))
_FOREVER = 1 << 50


@dataclass
class Content:
    """Everything that can be read from a store, but for how it names places."""

    ready: dict[Lane, list[Stored]] = field(default_factory=dict)
    postponed: list[Stored] = field(default_factory=list)
    dead: dict[str, list[Stored]] = field(default_factory=dict)
    results: list[bytes] = field(default_factory=list)


def content_of(store: Store) -> Content:
    """Everything that can be read from ``store``, in pieces."""
    content = Content()
    for lane in _LANES:
        after, content.ready[lane] = 0, []
        while items := store.read(lane, after, 7, 5000):
            after = items[-1].number
            content.ready[lane] += map(_seen, items)
    for lane in _LANES:
        position = Position()
        while due := store.next_due(lane, position):
            items = store.read_due(lane, _FOREVER, position, 5, 5000)
            assert items and items[0].position.due == due
            position = items[-1].position
            content.postponed += map(_seen, items)
    content.postponed.sort()
    for queue in sorted({lane.queue for lane in _LANES}):
        position, content.dead[queue] = Position(), []
        while items := store.read_dead(queue, position, 3, 5000):
            position = items[-1].position
            content.dead[queue] += map(_seen, items)
    content.results = [store.result(lane, number) for lane in _LANES for number in range(1, 7)]
    return content


def differences(found: Content, wanted: Content) -> str:
    """How two contents differ, in short."""
    lines = []
    for name in ("ready", "postponed", "dead"):
        here, there = _flat(getattr(found, name)), _flat(getattr(wanted, name))
        lines += [f"{name}, not wanted: {_brief(each)}" for each in here if each not in there]
        lines += [f"{name}, missing: {_brief(each)}" for each in there if each not in here]
        if len(here) == len(there) and not lines and here != there:
            lines.append(f"{name}: in another order")
    return "\n".join(lines)


def _flat(items: dict[Any, list[Stored]] | list[Stored]) -> list[Stored]:
    return items if isinstance(items, list) else [each for row in items.values() for each in row]


def _brief(item: Stored) -> str:
    return str(item._replace(body=item.body[:4]))


def _seen(item: Stored | Damaged) -> Stored:
    assert isinstance(item, Stored), item
    return item._replace(position=item.position._replace(place=0))


class RandomChanges:
    """Makes changes to what is in a store."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._count = self._now = 0

    def some(self, store: Store) -> list[Change]:
        """Changes that come together, some of them to the items of ``store``."""
        return [self._one(store) for _ in range(self._random.choice((1, 1, 2, 5, 12)))]

    def _one(self, store: Store) -> Change:
        random = self._random
        self._now += random.randrange(1000)
        choice = random.random()
        lane = random.choice(_LANES)
        ready, due = store.read(lane, 0, 10, 1 << 20), store.read_due(lane, _FOREVER, Position(), 5, 1 << 20)
        dead = store.read_dead(lane.queue, Position(), 10, 1 << 20)
        if choice < 0.05:
            return self._of_results_and_keys(lane)
        if choice < 0.45 or not (ready or due):
            return self._put(lane)
        item = random.choice(ready + due)
        state = random.randbytes(random.randrange(4))
        if choice < 0.75:
            return Done(item.lane, item.number, len(_seen(item).body))
        if choice < 0.83:
            return Postpone(item.lane, item.number, self._now + random.randrange(1, 5000), state)
        if choice < 0.9:
            return Bury(item.lane, item.number, self._now, state)
        if choice < 0.93:
            return self._move(item, state)
        if choice < 0.96 and dead:
            item = random.choice(dead)
            if random.random() < 0.5:
                return Revive(item.lane, item.number, self._now + 1, state)
            if random.random() < 0.5:
                return self._move(item, state)
            return Forget(item.lane, item.number)
        return Note(random.choice("ab"), random.randbytes(random.randrange(3)))

    def _of_results_and_keys(self, lane: Lane) -> Change:
        random = self._random
        number = random.randrange(1, 9)
        choice = random.randrange(5)
        if choice < 2:
            return Keep(lane, number, self._now + random.randrange(9000), random.randbytes(random.choice((0, 9, 900))))
        if choice == 2:
            return Expire(lane.queue, self._now)
        return Release(lane, number, b"")

    def _move(self, item: Stored | Damaged, state: bytes) -> Move:
        due = self._now + self._random.randrange(1, 5000) if self._random.random() < 0.5 else 0
        return Move(item.lane, item.number, self._random.choice(_LANES), due, state)

    def _put(self, lane: Lane) -> Put:
        random = self._random
        body = random.randbytes(random.choice((1, 50, 300, 3000)))
        due = self._now + random.randrange(1, 5000) if random.random() < 0.2 else 0
        if random.random() < 0.2:
            return Put(lane, body, self._now, due, id=b"invoice-%d" % random.randrange(50), digest=body[:1])
        unique = b"only-%d" % random.randrange(9) if random.random() < 0.1 else b""
        self._count += random.choice((1, 1, 1, 1, 0, 2))
        return Put(lane, body, self._now, due, maker=Maker(random.randrange(1, 4), self._count + 1), unique=unique)
