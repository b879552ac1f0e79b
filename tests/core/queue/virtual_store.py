"""A store that answers when it is told to, and whose router may die in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from rpcmq.core.queue.policy import Policy
from rpcmq.core.queue.port import Items
from rpcmq.core.queue.queues import NewItem, Queues
from rpcmq.core.queue.work_queue import Given, WorkQueue
from rpcmq.store.contract import Change, Found, Incoming, Lane, Maker, Position, Put, Recovered, Verdict
from tests.store.memory_store import MemoryStore

__all__ = ["VirtualStore", "World"]


class VirtualStore:
    """The port of a queue, over a store in memory."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.waits_for = ""
        self.on_reopened: Callable[[], object] = lambda: None
        self.waiting: deque[tuple[Callable[[], Any], Callable[[Any], object]]] = deque()

    def apply(self, changes: Sequence[Change], then: Callable[[list[Verdict]], object]) -> None:
        self.waiting.append((lambda: self.store.apply(changes), then))

    def read(self, lane: Lane, after: int, most: int, most_bytes: int, then: Callable[[Items], object]) -> None:
        self.waiting.append((lambda: self.store.read(lane, after, most, most_bytes), then))

    def read_due(
        self, lane: Lane, now: int, after: Position, most: int, most_bytes: int, then: Callable[[Items], object]
    ) -> None:
        self.waiting.append((lambda: self.store.read_due(lane, now, after, most, most_bytes), then))

    def next_due(self, lane: Lane, after: Position, then: Callable[[int], object]) -> None:
        self.waiting.append((lambda: self.store.next_due(lane, after), then))

    def read_incoming(self, most: int, most_bytes: int, then: Callable[[Sequence[Incoming]], object]) -> None:
        self.waiting.append((lambda: self.store.read_incoming(most, most_bytes), then))

    def read_dead(
        self, queue: str, after: Position, most: int, most_bytes: int, then: Callable[[Items], object]
    ) -> None:
        self.waiting.append((lambda: self.store.read_dead(queue, after, most, most_bytes), then))

    def find(self, lane: Lane, number: int, then: Callable[[Found | None], object]) -> None:
        self.waiting.append((lambda: self.store.find(lane, number), then))

    def result(self, lane: Lane, number: int, then: Callable[[bytes], object]) -> None:
        self.waiting.append((lambda: self.store.result(lane, number), then))

    def known(self, puts: Sequence[Put], then: Callable[[list[Verdict]], object]) -> None:
        self.waiting.append((lambda: self.store.known(puts), then))

    def recount(self, then: Callable[[Recovered], object]) -> None:
        self.waiting.append((self.store.recount, then))

    def reopen(self, done: int) -> None:
        """The store fails and is opened again: of what it has not answered, so much was done, and comes again."""
        for step, _ in list(self.waiting)[:done]:
            step()
        self.on_reopened()

    def answer(self) -> None:
        """Answer the first request."""
        step, then = self.waiting.popleft()
        then(step())


class World:
    """The queues of one owner, their store, and the time."""

    def __init__(self, has_incoming: bool = False) -> None:
        self.store = MemoryStore(has_incoming)
        self.now = 100.0
        self._count = 0
        self.begin()

    def begin(self) -> None:
        """A life of the queue server begins."""
        self.port = VirtualStore(self.store)
        self.queues = Queues(self.port, self.store.recovered, self.now, self.wall)
        self.run()

    @staticmethod
    def wall(now: float) -> int:
        """Milliseconds of the wall clock."""
        return 1_000_000 + int(now * 1000)

    def run(self) -> None:
        """Let the store answer everything."""
        self.queues.tick(self.now)
        while self.port.waiting:
            self.port.answer()
            self.queues.tick(self.now)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        self.run()

    def kill(self, is_in_order: bool = False) -> None:
        """The queue server dies, with whatever the store has not done yet; another life begins."""
        if is_in_order:
            self.queues.close()
            self.run()
        self.store.reopen()
        self.begin()

    @property
    def queue(self) -> WorkQueue:
        """The queue that most tests use."""
        return self.queues.queue("billing")

    def set_policy(self, **settings: Any) -> None:
        """Give the queue these settings, which are durable then."""
        self.queues.declare(self.now, "billing", Policy(**settings), lambda: None)
        self.run()

    def put(self, *messages: bytes, **fields: Any) -> list[Verdict]:
        """Put items with these messages, which is durable then."""
        items = []
        for message in messages:
            self._count += 1
            maker = Maker(0, 0) if fields.get("id") else Maker(7, self._count)
            items.append(NewItem(message, maker=maker, **fields))
        verdicts: list[Verdict] = []
        self.queues.put(self.now, "billing", items, verdicts.extend)
        self.run()
        return verdicts

    def take(self) -> Given | None:
        """The next item, when the store has answered whatever it takes."""
        while (given := self.queue.take(self.now)) is None:
            self.queues.tick(self.now)
            if not self.port.waiting:
                return None
            self.run()
        return given

    def taken(self) -> Given:
        """The next item, which there is."""
        given = self.take()
        assert given is not None
        return given

    def take_all(self) -> list[bytes]:
        """The messages of all items that can be taken now."""
        found = []
        while (given := self.take()) is not None:
            found.append(given.message)
        return found
