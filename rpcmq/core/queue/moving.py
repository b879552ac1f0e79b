"""The items of a queue that are ready go to another queue, page by page, and none is lost or in both."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rpcmq.core.queue.envelope import Envelope
from rpcmq.core.queue.given_item import Key
from rpcmq.core.queue.pages import PAGE, PAGE_BYTES, End, InTurn, key_of
from rpcmq.core.queue.port import Items
from rpcmq.core.queue.queues import Queues
from rpcmq.core.queue.results import UNKNOWN, Outcome
from rpcmq.core.queue.work_queue import WorkQueue
from rpcmq.store.contract import Damaged, Lane, Move, Position, Release, Stored, Verdict

__all__ = ["move_ready"]


def move_ready(
    queues: Queues, now: float, queue: WorkQueue, target: WorkQueue, then: Callable[[int], object], in_turn: InTurn
) -> None:  # fmt: skip
    """Move the items of ``queue`` that are ready now, and no worker has, to ``target``; ``then`` gets their number.

    Args:
        in_turn: begins each page.
    """
    _Move(queues, now, queue, target, then, in_turn).begin()


class _Row(NamedTuple):
    """Items that are read page by page: those of a lane that are ready, or of which the time has come."""

    begin: Any
    #: Called with the place after which to read, and who takes the items.
    read: Callable[[Any, Callable[[Items], object]], object]
    place_of: Callable[[Stored | Damaged], Any]


class _Move:
    def __init__(
        self, queues: Queues, now: float, queue: WorkQueue, target: WorkQueue, then: Callable[[int], object],
        in_turn: InTurn,
    ) -> None:  # fmt: skip
        self._store = queues.store
        self._now, self._until = now, queues.wall(now)
        self._queue, self._target = queue, target
        self._then = then
        self._in_turn = in_turn
        self._count = 0
        lanes = [Lane(queue.name, priority) for priority in queue.lanes]
        self._rows = deque([*map(self._ready, lanes), *map(self._due, lanes)])

    def _ready(self, lane: Lane) -> _Row:
        return _Row(
            0, lambda after, take: self._store.read(lane, after, PAGE, PAGE_BYTES, take), lambda item: item.number
        )

    def _due(self, lane: Lane) -> _Row:
        # Few of them are in memory, and others are read while these are moved.
        return _Row(
            Position(),
            lambda after, take: self._store.read_due(lane, self._until, after, PAGE, PAGE_BYTES, take),
            lambda item: item.position,
        )

    def begin(self) -> None:
        """Move what is in memory, and then what is in the store only."""

        def first(end: End) -> None:
            in_memory = list(self._queue.in_memory)
            held = self._queue.hold(self._now, map(key_of, in_memory))
            self._move([item for item in in_memory if key_of(item) in held], end, self._next_row)

        self._in_turn(PAGE, first)

    def _next_row(self) -> None:
        if self._rows:
            row = self._rows.popleft()
            self._next_page(row, row.begin)
        else:
            self._then(self._count)

    def _next_page(self, row: _Row, after: Any) -> None:
        self._in_turn(PAGE, lambda end: self._page(row, after, end))

    def _page(self, row: _Row, after: Any, end: End) -> None:
        def take(items: Items) -> None:
            if not items:
                end()
                self._next_row()
                return
            some = [item for item in items if self._may_go(item)]
            held = self._queue.hold(self._now, map(key_of, some))
            # A worker may have had some since they were read, and given them back; now that cannot be any more.
            row.read(after, lambda items_now: move(held, row.place_of(items[-1]), items_now))

        def move(held: set[Key], last: Any, items: Items) -> None:
            some = [item for item in items if isinstance(item, Stored) and key_of(item) in held]
            self._queue.let_go(held.difference(map(key_of, some)), set())
            self._move(some, end, lambda: self._next_page(row, last))

        row.read(after, take)

    def _may_go(self, item: Stored | Damaged) -> bool:
        is_new = not isinstance(item, Stored) or item.at > self._until
        return not is_new and not self._queue.may_run(self._now, item)

    def _move(self, some: Sequence[Stored], end: End, then: Callable[[], object]) -> None:
        """Move the items ``some``, which are held, end the turn, and go on with ``then``."""
        queue, target, due = self._queue, self._target, self._until + 1
        held = set(map(key_of, some))
        changes = [
            Move(item.lane, item.number, item.lane._replace(queue=target.name), due if item.state else 0, item.state)
            for item in some
        ]

        def moved(verdicts: list[Verdict]) -> None:
            # Where the store says nothing, it had done it already, before it was opened again: it is not here any more.
            queue.let_go(held, held)
            for item, change, verdict in zip(some, changes, verdicts[: len(some)], strict=True):
                queue.results.ended(item, Outcome(UNKNOWN, text=f"it was moved to queue {target.name!r}"))
                if not verdict.number:
                    target.may_have_more(change.to)
                    continue
                self._count += 1
                queue.tally.left(item)
                if change.due:
                    target.postponed(change.to, verdict.number, len(item.body))
                else:
                    number = verdict.number
                    target.accepted(item._replace(position=Position(number=number), lane=change.to, number=number))
            target.on_ready()
            end()
            then()

        self._store.apply(
            [*changes, *(Release(item.lane, item.number, b"") for item in some if _is_unique(item))], moved
        )


def _is_unique(item: Stored) -> bool:
    """Return whether it may have a unique key."""
    try:
        return bool(Envelope.from_bytes(item.body).unique)
    except ValueError:
        return True
