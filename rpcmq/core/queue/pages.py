"""Pages: many items are changed in steps, each of which has its turn at the store, so that puts go on between."""

from __future__ import annotations

from collections.abc import Callable

from rpcmq.core.queue.given_item import Key
from rpcmq.store.contract import Damaged, Stored

__all__ = ["PAGE", "PAGE_BYTES", "End", "InTurn", "at_once", "key_of"]

#: Items, and bytes of them, that are read and changed at once.
PAGE, PAGE_BYTES = 256, 4 << 20

End = Callable[[], object]
#: Has a step begun when it is its turn: gets its work, in items, and what begins it, which gets a function that is to
#: be called when it has ended.
InTurn = Callable[[int, Callable[[End], object]], object]


def at_once(work: int, begin: Callable[[End], object]) -> None:
    """Begin a step now."""
    begin(lambda: None)


def key_of(item: Stored | Damaged) -> Key:
    """The priority and the number of an item."""
    return item.lane.priority, item.number
