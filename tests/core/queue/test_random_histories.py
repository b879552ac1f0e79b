"""Random histories of a queue: each accepted item ends once, whoever dies, and none runs twice at a time.

Of a series one runs at a time, too, and they are begun in the order of their numbers.
"""

from __future__ import annotations

from random import Random

import pytest

from rpcmq.core.queue.cancelling import cancel
from rpcmq.core.queue.envelope import Envelope
from rpcmq.core.queue.operators import PEEK_STATES, Operators
from rpcmq.core.queue.policy import Policy
from rpcmq.core.queue.queues import NewItem
from rpcmq.core.queue.work_queue import Given
from rpcmq.store.contract import Damaged, Lane, Maker, Position, Stored, Verdict
from tests.core.queue.virtual_store import World

_ITEMS, _STEPS = 150, 900
_QUEUES = ("billing", "other")


class _History:
    def __init__(self, seed: int) -> None:
        self._random = random = Random(seed)
        self._world = world = World()
        #: Ids whose put was confirmed, or not yet, and those that are done.
        self._accepted: set[bytes] = set()
        self._put: dict[bytes, NewItem] = {}
        self._done: list[bytes] = []
        #: Those of which nobody knows whether they are, for want of an answer.
        self._ending: set[bytes] = set()
        self._running: list[Given] = []
        #: Messages that a worker of a former life of the router may still run, and until when.
        self._ghosts: dict[bytes, float] = {}
        #: The same of series: an item of them may run at a worker that was lost, or in a former life.
        self._ghosts_of_series: dict[tuple[str, bytes], float] = {}
        #: The number of the item that was begun last, of each series; and the messages that may come later
        #: than their turn: they were begun before, or were held when it came.
        self._last_begun: dict[tuple[Lane, bytes], int] = {}
        self._out_of_order: set[bytes] = set()
        policy = Policy(attempts=3, backoff=1.0, losses=3, concurrency=random.choice((0, 0, 3)))
        for name in _QUEUES:
            world.queues.declare(world.now, name, policy, lambda: None)
        world.run()

    def run(self) -> None:
        for _ in range(_STEPS):
            self._step()
            self._check_numbers()
        self._finish()
        self._check_numbers()

    def _step(self) -> None:
        random, world = self._random, self._world
        choice = random.random()
        if choice < 0.25 and len(self._put) < _ITEMS:
            self._new_items()
        elif choice < 0.3:
            self._put_again()
        elif choice < 0.5:
            self._take()
        elif choice < 0.7:
            self._end_one()
        elif choice < 0.9:
            for _ in range(random.randrange(4)):
                if world.port.waiting:
                    world.port.answer()
        elif choice < 0.905:
            self._operate()
        elif choice < 0.92:
            world.port.reopen(random.randrange(6))
        elif choice < 0.985:
            world.now += random.random() * random.choice((0.1, 3.0))
            world.queues.tick(world.now)
        else:
            self._kill()

    def _operate(self) -> None:
        """An operator does something to many items."""
        operators, now = Operators(self._world.queues), self._world.now
        name, to = self._random.sample(_QUEUES, 2)
        choice = self._random.randrange(6)
        if choice == 0:
            operators.retry(now, name, lambda count: None)
        elif choice == 1:
            operators.move_dead(now, name, to, lambda count: None)
        elif choice == 2:
            operators.move_ready(now, name, to, lambda count: None)
        elif choice < 5:
            items = [
                each for priority in (0, 5)
                for each in self._world.store.read_due(Lane(name, priority), 1 << 60, Position(), 30, 1 << 20)
            ]  # fmt: skip
            items += self._world.store.read(Lane(name, 0), 0, 30, 1 << 20)
            if items:
                self._cancel(self._random.choice(items))
        else:
            operators.peek(name, self._random.choice(PEEK_STATES), 5, lambda views: None)

    def _cancel(self, item: Stored | Damaged) -> None:
        assert isinstance(item, Stored)
        message = Envelope.from_bytes(item.body).message
        was_ending = message in self._ending
        self._ending.add(message)
        self._out_of_order.add(message)

        def answered(answer: str) -> None:
            if answer == "cancelled":
                assert message not in [given.message for given in self._running]
                assert self._ghosts.get(message, 0.0) <= self._world.now
                self._ended(message)
            elif not was_ending:
                self._ending.discard(message)

        cancel(self._world.queues, self._world.now, item.lane.queue, item.lane.priority, item.number, answered)

    def _check_numbers(self) -> None:
        """When the store has answered everything, the queue counts what the store has."""
        world = self._world
        if world.port.waiting:
            return
        content = world.store.recount()
        for name in _QUEUES:
            queue = world.queues.queue(name)
            tally = queue.tally
            assert tally.postponed == sum(count for lane, count in content.postponed.items() if lane.queue == name)
            ready = sum(count for lane, count in content.ready.items() if lane.queue == name)
            assert tally.items == tally.postponed + ready
            assert tally.bytes == content.sizes.get(name, 0) and tally.coming == tally.coming_bytes == 0
            assert (tally.ending, tally.dead) == (0, content.dead.get(name, 0))
            figures = queue.figures(world.now)
            assert figures["running"] == sum(given.item.lane.queue == name for given in self._running)
            assert figures["ready"] + figures["postponed"] + figures["running"] == tally.items
            assert figures["postponed"] >= 0

    def _new_items(self) -> None:
        random, world = self._random, self._world
        items = []
        for _ in range(random.choice((1, 1, 3, 10))):
            message = b"%d" % len(self._put)
            given_id = b"id-" + message if random.random() < 0.3 else b""
            self._put[message] = item = NewItem(
                message, message, given_id, Maker(0, 0) if given_id else Maker(7, len(self._put) + 1),
                random.choice((0, 0, 5)), world.wall(world.now + random.random() * 5) if random.random() < 0.2 else 0,
                series=random.choice((b"", b"", b"s", b"t")),
            )  # fmt: skip
            items.append(item)
        self._send(items)

    def _put_again(self) -> None:
        """A client that was not answered asks once more."""
        unanswered = [item for message, item in self._put.items() if message not in self._accepted]
        if unanswered:
            self._send([self._random.choice(unanswered)])

    def _send(self, items: list[NewItem]) -> None:
        def confirmed(verdicts: list[Verdict]) -> None:
            for item, verdict in zip(items, verdicts, strict=True):
                assert verdict.number or verdict.is_known
                assert not verdict.is_other
                self._accepted.add(item.message)

        self._world.queues.put(self._world.now, "billing", items, confirmed)

    def _take(self) -> None:
        world = self._world
        queue = world.queues.queue(self._random.choice(_QUEUES))
        given = queue.take(world.now)
        if given is None:
            return
        assert given.message not in [each.message for each in self._running]
        assert self._ghosts.get(given.message, 0.0) <= world.now
        assert given.message not in self._done
        if given.series:
            running = [(each.item.lane.queue, each.series) for each in self._running]
            assert (queue.name, given.series) not in running
            assert self._ghosts_of_series.get((queue.name, given.series), 0.0) <= world.now
            self._check_order(given)
        self._out_of_order.add(given.message)
        self._running.append(given)

    def _check_order(self, given: Given) -> None:
        """It comes after those of its series that were put before, but for such as are tried again, or come later."""
        item = given.item
        if given.message not in self._out_of_order and not item.state and not item.position.due:
            assert item.number > self._last_begun.get((item.lane, given.series), 0)
            self._last_begun[item.lane, given.series] = item.number

    def _end_one(self) -> None:
        if not self._running:
            return
        random, world = self._random, self._world
        given = self._running.pop(random.randrange(len(self._running)))
        choice, queue = random.random(), world.queues.queue(given.item.lane.queue)
        if choice < 0.6:
            self._ending.add(given.message)
            assert queue.done(given.fence, lambda: self._ended(given.message))
        elif choice < 0.75:
            assert queue.failed(world.now, given.fence, "w", "raised", random.choice((None, 0.5)))
        elif choice < 0.85:
            assert queue.lost(world.now, given.fence, "w", "killed")
            self._haunt([given])
        elif choice < 0.9:
            assert queue.rejected(world.now, given.fence, "w", "no")
        else:
            assert queue.not_begun(given.fence)

    def _ended(self, message: bytes) -> None:
        self._ending.discard(message)
        self._done.append(message)

    def _kill(self) -> None:
        world = self._world
        for _ in range(self._random.randrange(5)):
            if world.port.waiting:
                world.port.answer()
        lease = world.queue.policy.lease
        self._ghosts |= {given.message: world.now + lease for given in self._running}
        self._haunt(self._running)
        late, self._running = self._running, []
        world.store.reopen()
        world.begin()
        for given in late:
            assert not world.queues.queue(given.item.lane.queue).done(given.fence)

    def _haunt(self, lost: list[Given]) -> None:
        """The series of what was lost may still run somewhere."""
        until = self._world.now + self._world.queue.policy.lease
        self._ghosts_of_series |= {(given.item.lane.queue, given.series): until for given in lost}

    def _finish(self) -> None:
        """Everything that was accepted, and all that waits, ends."""
        world = self._world
        self._send([item for message, item in self._put.items() if message not in self._accepted])
        for _ in range(3000):
            world.advance(1.0)
            self._take()
            if self._running:
                self._end_one()
            elif world.now > 4000 and not any(world.queues.queue(name).tally.items for name in _QUEUES):
                break
        world.run()
        found = [each for name in _QUEUES for each in world.store.read_dead(name, Position(), 1000, 1 << 20)]
        dead = [each.body for each in found if isinstance(each, Stored)]
        ended = [*self._done, *(Envelope.from_bytes(body).message for body in dead)]
        assert len(ended) == len(set(ended))
        assert self._put.keys() - self._ending <= set(ended) <= self._put.keys()
        assert self._accepted == set(self._put)


_LONG = [pytest.param(seed, marks=pytest.mark.long) for seed in range(40, 600)]


@pytest.mark.parametrize("seed", [*range(40), *_LONG])
def test_each_item_ends_once_and_runs_once_at_a_time(seed: int) -> None:
    _History(seed).run()
