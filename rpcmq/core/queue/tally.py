"""The number of items that a queue has, by state.

Counted when the store has answered, so that it is what the store has: after the store was opened again in the middle of
something, and nobody knows what of it is there, the store is asked, and its answer stands at the same place among the
others.
"""

from __future__ import annotations

from collections.abc import Iterable

from rpcmq.store.contract import Damaged, Lane, Recovered, Stored

__all__ = ["Tally", "size_of"]


class Tally:
    """The items of one queue.

    Attributes:
        items: those that have not ended.
        postponed: of these, as the store has it: also one that is due and was read.
        in_hand: of the postponed, those that were read because they are due.
        ending: items whose end the store was told of, and has not answered.
        dead: those that are dead.
        bytes: the bytes of all of them, the dead ones included.
        coming, coming_bytes: items that the store was told of, and has not answered.
    """

    __slots__ = ("bytes", "coming", "coming_bytes", "dead", "ending", "in_hand", "items", "postponed")

    def __init__(self) -> None:
        self.items = self.postponed = self.in_hand = self.ending = self.dead = 0
        self.bytes = self.coming = self.coming_bytes = 0

    def recount(self, queue: str, priorities: Iterable[int], content: Recovered) -> None:
        """Take over what the store has of ``queue``."""
        lanes = [Lane(queue, priority) for priority in priorities]
        self.postponed = sum(content.postponed.get(lane, 0) for lane in lanes)
        self.items = self.postponed + sum(content.ready.get(lane, 0) for lane in lanes)
        self.dead = content.dead.get(queue, 0)
        self.bytes = content.sizes.get(queue, 0)

    @property
    def later(self) -> int:
        """Items that are not due yet."""
        return self.postponed - self.in_hand

    def comes_again(self, item: Stored | Damaged) -> None:
        """An item was postponed that a worker had."""
        self.ending -= 1
        if item.position.due:
            self.in_hand -= 1
        else:
            self.postponed += 1

    def left(self, item: Stored | Damaged) -> None:
        """An item has ended, or gone, that was not given; whether it was in hand is another matter."""
        self.items -= 1
        self.bytes -= size_of(item)
        if item.position.due:
            self.postponed -= 1

    def ended(self, item: Stored | Damaged) -> None:
        """An item has ended that was given, or could have been."""
        self.ending -= 1
        self.items -= 1
        self.bytes -= size_of(item)
        if item.position.due:
            self.postponed -= 1
            self.in_hand -= 1


def size_of(item: Stored | Damaged) -> int:
    """Bytes of the body, as the store counts them; 0 if they are not known."""
    return len(item.body) if isinstance(item, Stored) else 0
