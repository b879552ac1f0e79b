"""The verbs of operators: show items, try dead ones again, drop or move them, pause and drain queues.

Whatever is done to many items is done page by page, so that puts and takes go on between. Each page is durable as a
whole before the next one is read. Answers come by a callback.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rpcmq.core.queue.dead_items import DeadItems, Progress
from rpcmq.core.queue.given_item import Key
from rpcmq.core.queue.moving import move_ready
from rpcmq.core.queue.pages import PAGE, PAGE_BYTES, InTurn, at_once, key_of
from rpcmq.core.queue.port import Items
from rpcmq.core.queue.queues import DRAINING, PAUSED, Queues
from rpcmq.core.queue.story import Story
from rpcmq.core.queue.tally import size_of
from rpcmq.core.queue.views import ItemView, view_of
from rpcmq.core.queue.work_queue import WorkQueue
from rpcmq.store.contract import (
    Change,
    Damaged,
    Forget,
    Found,
    Lane,
    Move,
    Note,
    Position,
    Revive,
    Stored,
)

__all__ = ["PEEK_STATES", "Operators"]

#: The choices of :meth:`Operators.peek`.
PEEK_STATES = ("ready", "postponed", "running", "dead")
_EVER = 1 << 60
_FIRST = Position()

Count = Callable[[int], object]


class Operators:
    """Changes ``queues`` for operators.

    Args:
        in_turn: begins what is done page by page.
    """

    def __init__(self, queues: Queues, in_turn: InTurn = at_once) -> None:
        self._in_turn = in_turn
        self._queues = queues
        self._store = queues.store

    # --- looking -----------------------------------------------------------------------------

    def peek(
        self, name: str, state: str, most: int, then: Callable[[list[ItemView]], object], after: Position = _FIRST
    ) -> None:
        """Show the first items of a queue that are in ``state``, at most 4 MiB of them and one.

        Args:
            after: of dead ones, those that come after this place.

        Raises:
            ValueError: there is no such state.
        """
        queue = self._queues.queue(name)
        if state not in PEEK_STATES:
            raise ValueError(f"state must be one of {', '.join(PEEK_STATES)}, not {state!r}")
        if state == "running":
            then(_first([view_of(state, given.item) for given in queue.given], most))
        elif state == "dead":
            self._store.read_dead(
                name, after, most, PAGE_BYTES, lambda items: then([view_of(state, each) for each in items])
            )
        elif state == "ready":
            self._peek_ready(queue, most, then)
        else:
            self._peek_postponed(queue, most, then)

    def _peek_ready(self, queue: WorkQueue, most: int, then: Callable[[list[ItemView]], object]) -> None:
        taken = {key_of(given.item) for given in queue.given}
        found = {key_of(item): view_of("ready", item) for item in queue.in_memory}
        rest = list(queue.lanes)

        def read(items: Items = ()) -> None:
            found.update((key_of(item), view_of("ready", item)) for item in items if key_of(item) not in taken)
            if rest and len(found) < most:
                self._store.read(Lane(queue.name, rest.pop(0)), 0, most + len(taken), PAGE_BYTES, read)
            else:
                then(_first(sorted(found.values(), key=lambda view: (-view.priority, view.number)), most))

        read()

    def _peek_postponed(self, queue: WorkQueue, most: int, then: Callable[[list[ItemView]], object]) -> None:
        taken = {key_of(item) for item in (*queue.in_memory, *(given.item for given in queue.given))}
        found: list[ItemView] = []
        rest = [Lane(queue.name, priority) for priority in queue.lanes]

        def read(lane: Lane, after: Position, wanted: int, room: int) -> None:
            def take(items: Items) -> None:
                ours = _first([view_of("postponed", item) for item in items if key_of(item) not in taken], wanted)
                found.extend(ours)
                left = room - sum(len(view.message) for view in ours)
                if items and len(ours) < wanted and left > 0:
                    read(lane, items[-1].position, wanted - len(ours), left)
                else:
                    read_next()

            self._store.read_due(lane, _EVER, after, PAGE, PAGE_BYTES, take)

        def read_next() -> None:
            if rest:
                read(rest.pop(0), Position(), most, PAGE_BYTES)
            else:
                then(_first(sorted(found, key=lambda view: view.since), most))

        read_next()

    def show(self, name: str, priority: int, number: int, then: Callable[[ItemView | None], object]) -> None:
        """Show one item; None: it has ended, or there was never one."""
        queue = self._queues.queue(name)
        for given in queue.given:
            if key_of(given.item) == (priority, number):
                then(view_of("running", given.item))
                return

        def found(item: Found | None) -> None:
            is_ready = (priority, number) in map(key_of, queue.in_memory)
            then(None if item is None else view_of("ready" if is_ready else item.state, item.item))

        self._store.find(Lane(name, priority), number, found)

    # --- dead items --------------------------------------------------------------------------

    def retry(
        self, now: float, name: str, then: Count, keys: Sequence[Key] | None = None,
        progress: Progress | None = None,
    ) -> None:  # fmt: skip
        """Put dead items again, to be tried as often as new ones; ``then`` gets their number.

        Each gets another number, and keeps its id. Damaged ones stay dead.

        Args:
            keys: priority and number of those that are meant; None: all.
            progress: where all are changed, where to begin; and how far it has come.
        """
        queue, due = self._queues.queue(name), self._queues.wall(now) + 1

        def change(item: Stored | Damaged) -> Change | None:
            return None if isinstance(item, Damaged) else Revive(item.lane, item.number, due, _state_again(item))

        def done(item: Stored | Damaged, number: int) -> None:
            queue.postponed(item.lane, number, size_of(item))

        self._each_dead(now, queue, keys, change, done, then, progress)

    def drop(
        self, now: float, name: str, then: Count, keys: Sequence[Key] | None = None,
        progress: Progress | None = None,
    ) -> None:  # fmt: skip
        """Forget dead items for ever; ``then`` gets their number.

        Args:
            keys: priority and number of those that are meant; None: all.
            progress: where all are changed, where to begin; and how far it has come.
        """

        def change(item: Stored | Damaged) -> Change:
            return Forget(item.lane, item.number)

        self._each_dead(now, self._queues.queue(name), keys, change, lambda item, number: None, then, progress)

    def move_dead(
        self, now: float, name: str, to: str, then: Count, keys: Sequence[Key] | None = None,
        progress: Progress | None = None,
    ) -> None:  # fmt: skip
        """Put dead items into the queue ``to``, to be tried as often as new ones; ``then`` gets their number.

        They end here in the commit that puts them there, so that none is lost, and none is there twice.

        Args:
            keys: priority and number of those that are meant; None: all.
            progress: where all are changed, where to begin; and how far it has come.

        Raises:
            ValueError: it is the same queue.
        """
        target, due = self._target(name, to), self._queues.wall(now) + 1

        def change(item: Stored | Damaged) -> Change | None:
            if isinstance(item, Damaged):
                return None
            return Move(item.lane, item.number, item.lane._replace(queue=to), due, _state_again(item))

        def done(item: Stored | Damaged, number: int) -> None:
            target.postponed(item.lane._replace(queue=to), number, size_of(item))

        self._each_dead(now, self._queues.queue(name), keys, change, done, then, progress)

    def _target(self, name: str, to: str) -> WorkQueue:
        if name == to:
            raise ValueError(f"items of queue {name!r} cannot be moved to itself")
        return self._queues.queue(to)

    def _each_dead(
        self, now: float, queue: WorkQueue, keys: Sequence[Key] | None,
        change: Callable[[Stored | Damaged], Change | None], done: Callable[[Stored | Damaged, int], object],
        then: Count, progress: Progress | None,
    ) -> None:  # fmt: skip
        progress = Progress() if progress is None else progress
        items = DeadItems(self._store, queue, change, done, then, self._in_turn)
        if keys is None:
            items.change_all(now, progress)
        else:
            items.change_some(keys, progress)

    # --- ready items -------------------------------------------------------------------------

    def move_ready(self, now: float, name: str, to: str, then: Count) -> None:
        """Put the items that are ready now, and no worker has, into the queue ``to``; ``then`` gets their number.

        So go those that are due, whether they were read yet or not. They end here in the commit that puts them there,
        so that none is lost, and none is there twice.

        Raises:
            ValueError: it is the same queue.
        """
        move_ready(self._queues, now, self._queues.queue(name), self._target(name, to), then, self._in_turn)

    # --- queues ------------------------------------------------------------------------------

    def pause(self, name: str, then: Callable[[], object]) -> None:
        """Give no items of the queue until it is resumed, also in later lives; those that workers have go on."""
        self._queues.queue(name).is_paused = True
        self._store.apply([Note(PAUSED + name, b"1")], lambda verdicts: then())

    def drain(self, name: str, then: Callable[[], object]) -> None:
        """Put nothing into the queue until it is resumed, also in later lives, and give what is there."""
        self._queues.queue(name).is_draining = True
        self._store.apply([Note(DRAINING + name, b"1")], lambda verdicts: then())

    def resume(self, name: str, then: Callable[[], object]) -> None:
        """Put and give items again."""
        queue = self._queues.queue(name)
        queue.is_paused = queue.is_draining = False
        self._store.apply([Note(PAUSED + name, b""), Note(DRAINING + name, b"")], lambda verdicts: then())
        queue.on_ready()


def _state_again(item: Stored) -> bytes:
    return Story.from_bytes(item.state).again().to_bytes()


def _first(views: list[ItemView], most: int) -> list[ItemView]:
    """The first of ``views``, until they have 4 MiB; one in any case."""
    room = PAGE_BYTES
    for number, view in enumerate(views[:most]):
        if room <= 0:
            return views[:number]
        room -= len(view.message)
    return views[:most]
