"""The verbs of operators: show items, try dead ones again, drop or move them, pause and drain queues.

Whatever is done to many items is done page by page, so that puts and takes go on between. Each page is durable as a
whole before the next one is read. Answers come by a callback.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rpcmq.core.queue.envelope import Envelope
from rpcmq.core.queue.given import Key
from rpcmq.core.queue.port import Items
from rpcmq.core.queue.queues import DRAINING, PAUSED, Queues
from rpcmq.core.queue.results import UNKNOWN, Outcome
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
    Release,
    Revive,
    Stored,
    Verdict,
)

__all__ = ["PEEK_STATES", "Operators"]

#: The choices of :meth:`Operators.peek`.
PEEK_STATES = ("ready", "postponed", "running", "dead")
#: Items, and bytes of them, that are read and changed at once.
_PAGE, _PAGE_BYTES = 256, 4 << 20
_EVER = 1 << 60

Count = Callable[[int], object]


class Operators:
    """Changes ``queues`` for operators."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._store = queues.store

    # --- looking -----------------------------------------------------------------------------

    def peek(self, name: str, state: str, most: int, then: Callable[[list[ItemView]], object]) -> None:
        """Show the first items of a queue that are in ``state``, at most 4 MiB of them.

        Raises:
            ValueError: there is no such state.
        """
        queue = self._queues.queue(name)
        if state not in PEEK_STATES:
            raise ValueError(f"state must be one of {', '.join(PEEK_STATES)}, not {state!r}")
        if state == "running":
            then([view_of(state, given.item) for given in queue.given][:most])
        elif state == "dead":
            self._store.read_dead(
                name, Position(), most, _PAGE_BYTES, lambda items: then([view_of(state, each) for each in items])
            )
        elif state == "ready":
            self._peek_ready(queue, most, then)
        else:
            self._peek_postponed(queue, most, then)

    def _peek_ready(self, queue: WorkQueue, most: int, then: Callable[[list[ItemView]], object]) -> None:
        taken = {_key(given.item) for given in queue.given}
        found = {_key(item): view_of("ready", item) for item in queue.in_memory}
        rest = list(queue.lanes)

        def read(items: Items = ()) -> None:
            found.update((_key(item), view_of("ready", item)) for item in items if _key(item) not in taken)
            if rest and len(found) < most:
                self._store.read(Lane(queue.name, rest.pop(0)), 0, most + len(taken), _PAGE_BYTES, read)
            else:
                then(sorted(found.values(), key=lambda view: (-view.priority, view.number))[:most])

        read()

    def _peek_postponed(self, queue: WorkQueue, most: int, then: Callable[[list[ItemView]], object]) -> None:
        taken = {_key(item) for item in (*queue.in_memory, *(given.item for given in queue.given))}
        found: list[ItemView] = []
        rest = [Lane(queue.name, priority) for priority in queue.lanes]

        def read(lane: Lane, after: Position, wanted: int) -> None:
            def take(items: Items) -> None:
                ours = [view_of("postponed", item) for item in items if _key(item) not in taken][:wanted]
                found.extend(ours)
                if items and len(ours) < wanted:
                    read(lane, items[-1].position, wanted - len(ours))
                else:
                    read_next()

            self._store.read_due(lane, _EVER, after, _PAGE, _PAGE_BYTES, take)

        def read_next() -> None:
            if rest:
                read(rest.pop(0), Position(), most)
            else:
                then(sorted(found, key=lambda view: view.since)[:most])

        read_next()

    def show(self, name: str, priority: int, number: int, then: Callable[[ItemView | None], object]) -> None:
        """Show one item; None: it has ended, or there was never one."""
        queue = self._queues.queue(name)
        for given in queue.given:
            if _key(given.item) == (priority, number):
                then(view_of("running", given.item))
                return

        def found(item: Found | None) -> None:
            is_ready = (priority, number) in map(_key, queue.in_memory)
            then(None if item is None else view_of("ready" if is_ready else item.state, item.item))

        self._store.find(Lane(name, priority), number, found)

    # --- dead items --------------------------------------------------------------------------

    def retry(self, now: float, name: str, then: Count, keys: Sequence[Key] | None = None) -> None:
        """Put dead items again, to be tried as often as new ones; ``then`` gets their number.

        Each gets another number, and keeps its id. Damaged ones stay dead.

        Args:
            keys: priority and number of those that are meant; None: all.
        """
        queue, due = self._queues.queue(name), self._queues.wall(now) + 1

        def change(item: Stored | Damaged) -> Change | None:
            return None if isinstance(item, Damaged) else Revive(item.lane, item.number, due, _state_again(item))

        def done(item: Stored | Damaged, number: int) -> None:
            queue.postponed(item.lane, number, size_of(item))

        self._each_dead(now, queue, keys, change, done, then)

    def drop(self, now: float, name: str, then: Count, keys: Sequence[Key] | None = None) -> None:
        """Forget dead items for ever; ``then`` gets their number.

        Args:
            keys: priority and number of those that are meant; None: all.
        """

        def change(item: Stored | Damaged) -> Change:
            return Forget(item.lane, item.number)

        self._each_dead(now, self._queues.queue(name), keys, change, lambda item, number: None, then)

    def move_dead(self, now: float, name: str, to: str, then: Count, keys: Sequence[Key] | None = None) -> None:
        """Put dead items into the queue ``to``, to be tried as often as new ones; ``then`` gets their number.

        They end here in the commit that puts them there, so that none is lost, and none is there twice.

        Args:
            keys: priority and number of those that are meant; None: all.

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

        self._each_dead(now, self._queues.queue(name), keys, change, done, then)

    def _target(self, name: str, to: str) -> WorkQueue:
        if name == to:
            raise ValueError(f"items of queue {name!r} cannot be moved to itself")
        return self._queues.queue(to)

    def _each_dead(
        self, now: float, queue: WorkQueue, keys: Sequence[Key] | None,
        change: Callable[[Stored | Damaged], Change | None], done: Callable[[Stored | Damaged, int], object],
        then: Count,
    ) -> None:  # fmt: skip
        """Change the items ``keys``, or all that are dead now, page by page."""
        until, count = self._queues.wall(now), 0
        wanted = None if keys is None else list(keys)

        def read(after: Position) -> None:
            if wanted is None:
                self._store.read_dead(queue.name, after, _PAGE, _PAGE_BYTES, take)
            elif wanted:
                priority, number = wanted.pop(0)
                self._store.find(Lane(queue.name, priority), number, take_one)
            else:
                then(count)

        def take_one(found: Found | None) -> None:
            change_all([found.item] if found is not None and found.state == "dead" else [], Position())

        def take(items: Items) -> None:
            if not items or items[0].position.due > until:
                then(count)
            else:
                change_all(items, items[-1].position)

        def change_all(items: Items, after: Position) -> None:
            changes = [(item, made) for item in items if (made := change(item)) is not None]

            def changed(verdicts: list[Verdict]) -> None:
                nonlocal count
                for (item, _), verdict in zip(changes, verdicts, strict=True):
                    if verdict.number:
                        count += 1
                        queue.undead(item)
                        done(item, verdict.number)
                read(after)

            self._store.apply([made for _, made in changes], changed)

        read(Position())

    # --- ready items -------------------------------------------------------------------------

    def move_ready(self, now: float, name: str, to: str, then: Count) -> None:
        """Put the items that are ready now, and no worker has, into the queue ``to``; ``then`` gets their number.

        They end here in the commit that puts them there, so that none is lost, and none is there twice.

        Raises:
            ValueError: it is the same queue.
        """
        queue, target = self._queues.queue(name), self._target(name, to)
        until, count = self._queues.wall(now), 0
        rest = list(queue.lanes)
        lane = Lane(name, 0)

        def read(after: int) -> None:
            self._store.read(lane, after, _PAGE, _PAGE_BYTES, lambda items: take(after, items))

        def read_lane() -> None:
            nonlocal lane
            if rest:
                lane = Lane(name, rest.pop(0))
                read(0)
            else:
                then(count)

        def take(after: int, items: Items) -> None:
            if not items:
                read_lane()
                return
            some = [item for item in items if isinstance(item, Stored) and item.at <= until]
            held = queue.hold(now, map(_key, some))
            # A worker may have had some since they were read, and given them back; now that cannot be any more.
            self._store.read(lane, after, _PAGE, _PAGE_BYTES, lambda items_now: move(held, items[-1].number, items_now))

        def move(held: set[Key], last: int, items: Items) -> None:
            some = [item for item in items if isinstance(item, Stored) and _key(item) in held]
            queue.let_go(held.difference(map(_key, some)), set())
            self._move_held(now, queue, target, some, lambda number: moved(number, last))

        def moved(number: int, after: int) -> None:
            nonlocal count
            count += number
            read(after)

        def moved_due(number: int) -> None:
            nonlocal count
            count = number
            read_lane()

        in_memory = list(queue.in_memory)
        held = queue.hold(now, map(_key, in_memory))
        self._move_held(now, queue, target, [item for item in in_memory if _key(item) in held], moved_due)

    def _move_held(self, now: float, queue: WorkQueue, target: WorkQueue, some: Sequence[Stored], then: Count) -> None:
        """Move the items ``some``, which are held."""
        due = self._queues.wall(now) + 1
        held = set(map(_key, some))
        changes = [
            Move(item.lane, item.number, item.lane._replace(queue=target.name), due if item.state else 0, item.state)
            for item in some
        ]

        def moved(verdicts: list[Verdict]) -> None:
            # Where the store says nothing, it had done it already, before it was opened again: it is not here any more.
            queue.let_go(held, held)
            count = 0
            for item, change, verdict in zip(some, changes, verdicts[: len(some)], strict=True):
                queue.results.ended(item, Outcome(UNKNOWN, text=f"it was moved to queue {target.name!r}"))
                if not verdict.number:
                    target.may_have_more(change.to)
                    continue
                count += 1
                queue.tally.left(item)
                if change.due:
                    target.postponed(change.to, verdict.number, len(item.body))
                else:
                    number = verdict.number
                    target.accepted(item._replace(position=Position(number=number), lane=change.to, number=number))
            target.on_ready()
            then(count)

        self._store.apply(
            [*changes, *(Release(item.lane, item.number, b"") for item in some if _is_unique(item))], moved
        )

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


def _key(item: Stored | Damaged) -> Key:
    return item.lane.priority, item.number


def _state_again(item: Stored) -> bytes:
    return Story.from_bytes(item.state).again().to_bytes()


def _is_unique(item: Stored) -> bool:
    """Whether it may have a unique key."""
    try:
        return bool(Envelope.from_bytes(item.body).unique)
    except ValueError:
        return True
