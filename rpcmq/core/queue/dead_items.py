"""Dead items that are put again, dropped or moved, page by page: each is durable before the next one is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rpcmq.core.queue.given_item import Key
from rpcmq.core.queue.pages import PAGE, PAGE_BYTES, End, InTurn, key_of
from rpcmq.core.queue.port import Items, StorePort
from rpcmq.core.queue.work_queue import WorkQueue
from rpcmq.store.contract import Change, Damaged, Found, Lane, Position, Stored, Verdict

__all__ = ["DeadItems", "Progress"]

_FIRST = Position()


@dataclass
class Progress:
    """The place up to which a change of all dead items of a queue has come.

    Attributes:
        most: items, to which pages are added, after which it stops; 0: it goes on to the end.
        until: those that died later stay as they are (milliseconds of the wall clock); 0: those that die from now on.
        after: the place up to which it has come; None: there are no more.
        missed: of items that are named, those that stay as they are.
    """

    most: int = 0
    until: int = 0
    after: Position | None = _FIRST
    missed: list[Key] = field(default_factory=list)


class DeadItems:
    """Changes dead items of ``queue``.

    Args:
        change: makes the change of an item; None: it stays as it is.
        done: called with each item that was changed, and the number that it has now.
        then: called with the number of those.
        in_turn: begins each page.
    """

    def __init__(
        self, store: StorePort, queue: WorkQueue, change: Callable[[Stored | Damaged], Change | None],
        done: Callable[[Stored | Damaged, int], object], then: Callable[[int], object], in_turn: InTurn,
    ) -> None:  # fmt: skip
        self._store = store
        self._queue = queue
        self._make = change
        self._done = done
        self._then = then
        self._in_turn = in_turn
        self._count = 0

    # --- all ---------------------------------------------------------------------------------

    def change_all(self, now: float, progress: Progress) -> None:
        """Change all that were dead at the beginning, from where ``progress`` is on."""
        until = progress.until = progress.until or self._queue.wall(now)
        seen = 0

        def page(end: End) -> None:
            def take(items: Items) -> None:
                nonlocal seen
                seen += len(items)
                # Of a damaged one nobody knows when it died.
                some = [item for item in items if isinstance(item, Damaged) or item.position.due <= until]
                progress.after = some[-1].position if some else None
                self._apply(some, following)

            def following(changed: set[Key]) -> None:
                end()
                if progress.after is None or (progress.most and seen >= progress.most):
                    self._then(self._count)
                else:
                    self._in_turn(PAGE, page)

            self._store.read_dead(self._queue.name, progress.after or Position(), PAGE, PAGE_BYTES, take)

        self._in_turn(PAGE, page)

    # --- some --------------------------------------------------------------------------------

    def change_some(self, keys: Sequence[Key], progress: Progress) -> None:
        """Change those of priority and number ``keys``."""
        wanted = list(keys)

        def page(end: End) -> None:
            some = wanted[:PAGE]
            del wanted[:PAGE]
            found: list[Stored | Damaged] = []
            left = len(some)

            def take(item: Found | None) -> None:
                nonlocal left
                left -= 1
                if item is not None and item.state == "dead":
                    found.append(item.item)
                if not left:
                    self._apply(found, following)

            def following(changed: set[Key]) -> None:
                end()
                progress.missed += [key for key in some if key not in changed]
                go_on()

            for priority, number in some:
                self._store.find(Lane(self._queue.name, priority), number, take)

        def go_on() -> None:
            if wanted:
                self._in_turn(PAGE, page)
            else:
                self._then(self._count)

        go_on()

    def _apply(self, items: Items, then: Callable[[set[Key]], object]) -> None:
        """Change ``items``; ``then`` gets those that are not dead any more."""
        changes = [(item, made) for item in items if (made := self._make(item)) is not None]
        if not changes:
            then(set())
            return

        def changed(verdicts: list[Verdict]) -> None:
            gone = set()
            for (item, _), verdict in zip(changes, verdicts, strict=True):
                if verdict.number:
                    gone.add(key_of(item))
                    self._count += 1
                    self._queue.undead(item)
                    self._done(item, verdict.number)
            then(gone)

        self._store.apply([made for _, made in changes], changed)
