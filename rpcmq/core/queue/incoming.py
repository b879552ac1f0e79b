"""Items that users have put in transactions of their own: they are looked for now and then, and put."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from rpcmq.core.queue.port import StorePort
from rpcmq.store.contract import Incoming

__all__ = ["IncomingItems", "by_clock"]

#: Items, and bytes of messages, that are put at once.
_MOST, _MOST_BYTES = 256, 4 << 20
#: A look that finds nothing, or only what other owners have taken, is followed by the next one so much later (seconds):
#: the first of them, and the last.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.25


class IncomingItems:
    """Looks for incoming items.

    Args:
        put: puts the items that were found, and calls its last argument with the number of those that were new.
        is_there: whether the store can have any.
        now: monotonic seconds.
        on_earlier: called when :meth:`next_deadline` may be earlier than it was.
    """

    def __init__(
        self,
        store: StorePort,
        put: Callable[[float, Sequence[Incoming], Callable[[int], object]], object],
        is_there: bool,
        now: float,
        on_earlier: Callable[[], object] = lambda: None,
    ) -> None:
        self._store = store
        self._put = put
        self._next = now if is_there else inf
        self._pause = _FIRST_PAUSE
        self._now = now
        self._is_looking = False
        self._on_earlier = on_earlier

    def tick(self, now: float) -> None:
        """Look, if it is time for it."""
        self._now = now
        if self._is_looking or now < self._next:
            return
        self._is_looking = True
        self._store.read_incoming(_MOST, _MOST_BYTES, self._take)

    def _take(self, items: Sequence[Incoming]) -> None:
        if items:
            self._put(self._now, items, self._look_again)
        else:
            self._look_again(0)

    def _look_again(self, new: int) -> None:
        self._is_looking = False
        self._pause = _FIRST_PAUSE if new else min(_LONGEST_PAUSE, 2 * self._pause)
        self._next = self._now if new else self._now + self._pause
        self._on_earlier()

    def next_deadline(self) -> float:
        """The time of the next look (monotonic seconds)."""
        return inf if self._is_looking else self._next


def by_clock(item: Incoming, wall: int) -> Incoming:
    """``item`` with its times as they are by a clock that shows ``wall`` at present."""
    if not item.now:
        return item
    at, due, expires = (time and max(1, time + wall - item.now) for time in (item.at, item.due, item.expires))
    return item._replace(at=at, due=due, expires=expires, now=0)
