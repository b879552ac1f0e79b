"""Items of many owners that wait in a bounded room: served in turn, and lost by whoever has the most."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["FairQueue"]

T = TypeVar("T")


class _Waiting(Generic[T]):
    __slots__ = ("items", "size")

    def __init__(self) -> None:
        self.items: deque[tuple[T, int]] = deque()
        self.size = 0


class FairQueue(Generic[T]):
    """A queue in which each owner has its turn, and where no room is left the owner that has the most loses its latest.

    "The most" is right to a factor of two: owners are kept by the power of two of their bytes, so that putting and
    taking cost the same however many there are. Of an owner without items nothing is kept.

    Args:
        max_bytes: of all items together.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.size = 0
        self._turns: OrderedDict[Hashable, _Waiting[T]] = OrderedDict()
        #: Owners by the bit length of their bytes.
        self._by_size: dict[int, dict[Hashable, None]] = {}
        self._count = 0
        self._in_hand = 0

    def __len__(self) -> int:
        """Items that wait, the one that was taken and is not done among them."""
        return self._count + (self._in_hand > 0)

    def put(self, owner: Hashable, item: T, size: int) -> list[T]:
        """Let ``item`` of so many bytes (1 at least) wait; return the items that are lost for it, itself perhaps."""
        if size > self._max_bytes:
            return [item]
        waiting = self._turns.get(owner)
        if waiting is None:
            waiting = self._turns[owner] = _Waiting()
        waiting.items.append((item, size))
        self._grow(owner, waiting, size)
        lost = []
        while self.size > self._max_bytes and self._count:
            lost.append(self._lose())
        return lost

    def take(self) -> T:
        """Return the item whose owner's turn it is. Its bytes are free after :meth:`done`.

        Raises:
            LookupError: none waits.
        """
        assert not self._in_hand, "the one before is not done"
        if not self._turns:
            raise LookupError("nothing waits")
        owner, waiting = next(iter(self._turns.items()))
        item, size = waiting.items.popleft()
        self._shrink(owner, waiting, size)
        if waiting.items:
            self._turns.move_to_end(owner)
        # It takes room until it is done, though no more of its owner's.
        self._in_hand = size
        self.size += size
        return item

    def done(self) -> None:
        """Free the bytes of the item that was taken."""
        self.size -= self._in_hand
        self._in_hand = 0

    def _lose(self) -> T:
        owner = next(iter(self._by_size[max(self._by_size)]))
        waiting = self._turns[owner]
        item, size = waiting.items.pop()
        self._shrink(owner, waiting, size)
        return item

    def _grow(self, owner: Hashable, waiting: _Waiting[T], size: int) -> None:
        self._count += 1
        self.size += size
        self._resize(owner, waiting.size, waiting.size + size)
        waiting.size += size

    def _shrink(self, owner: Hashable, waiting: _Waiting[T], size: int) -> None:
        self._count -= 1
        self.size -= size
        self._resize(owner, waiting.size, waiting.size - size)
        waiting.size -= size
        if not waiting.items:
            del self._turns[owner]

    def _resize(self, owner: Hashable, before: int, after: int) -> None:
        old, new = before.bit_length(), after.bit_length()
        if old == new:
            return
        if before:
            owners = self._by_size[old]
            del owners[owner]
            if not owners:
                del self._by_size[old]
        if after:
            self._by_size.setdefault(new, {})[owner] = None
