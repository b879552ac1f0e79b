"""Pools of reusable objects, such as connections."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from . import queue

__all__ = ["Pool", "TokenPool"]


class Pool:
    """Up to ``max_size`` objects made by ``create``, which a subclass defines or the constructor is given.

    ``min_size`` of them are made at once. With ``order_as_stack`` the one given back last is taken next, else
    the one given back first.
    """

    def __init__(
        self,
        min_size: int = 0,
        max_size: int = 4,
        order_as_stack: bool = False,
        create: Callable[[], Any] | None = None,
    ) -> None:
        self.min_size = min_size
        self.max_size = max_size
        self.order_as_stack = order_as_stack
        #: The items that exist, free or not.
        self.current_size = 0
        #: Hands an object that is given back to one who waits for it.
        self.channel = queue.LightQueue(0)
        self.free_items: deque[Any] = deque()
        if create is not None:
            self.create = create  # type: ignore[method-assign]
        for _ in range(min_size):
            self.current_size += 1
            self.free_items.append(self.create())

    def create(self) -> Any:
        """Make an object. It may wait."""
        raise NotImplementedError("Implement in subclass")

    def get(self) -> Any:
        """Take an object, making one if all are taken; wait for one if no more may be made."""
        if self.free_items:
            return self.free_items.popleft()
        # Counted before it exists: create() may wait, and others come meanwhile.
        self.current_size += 1
        if self.current_size <= self.max_size:
            try:
                return self.create()
            except BaseException:
                self.current_size -= 1
                raise
        self.current_size -= 1
        return self.channel.get()

    def put(self, item: Any) -> None:
        """Give an object back; one too many, after a ``resize``, is dropped."""
        if self.current_size > self.max_size:
            self.current_size -= 1
            return
        if self.waiting():
            try:
                self.channel.put(item, block=False)
            except queue.Full:
                pass  # the waiter has just given up: it becomes a free item
            else:
                return
        if self.order_as_stack:
            self.free_items.appendleft(item)
        else:
            self.free_items.append(item)

    @contextmanager
    def item(self) -> Iterator[Any]:
        """Take an object for a ``with`` block."""
        item = self.get()
        try:
            yield item
        finally:
            self.put(item)

    def resize(self, new_size: int) -> None:
        """Change ``max_size``; those too many are dropped as they are given back."""
        self.max_size = new_size

    def free(self) -> int:
        """Give how many can be taken without waiting."""
        return len(self.free_items) + self.max_size - self.current_size

    def waiting(self) -> int:
        """Give how many wait for an object."""
        return max(0, self.channel.getting() - self.channel.qsize() - self.channel.putting())


class Token:
    """Stands for the right to do something."""


class TokenPool(Pool):
    """A pool of objects that mean nothing: it limits how many do something at once."""

    def create(self) -> Any:
        """Make a token."""
        return Token()
