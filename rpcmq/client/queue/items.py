"""The item that a handler works at, and the exceptions by which it says how it ends."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

from rpcmq.client.arguments import check_seconds
from rpcmq.client.queue.protocol import WorkOrder
from rpcmq.errors import LeaseLost

__all__ = ["Item", "Reject", "RetryLater", "current_item", "set_current_item"]


class RetryLater(Exception):
    """Raised by a handler: the item is to be tried again in ``seconds``. It counts as an attempt that has failed.

    Raises:
        UsageError: that is no positive number.
    """

    def __init__(self, seconds: float, reason: str = "") -> None:
        self.seconds = check_seconds("seconds", seconds)
        super().__init__(reason or f"to be tried again in {seconds:g} s")


class Reject(Exception):
    """Raised by a handler: the item is not to be tried again. It goes to the dead ones, with ``reason``."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


class Item:
    """The item that a handler works at.

    Attributes:
        queue: its name.
        owner: the router whose queue server has it.
        id: that its producer gave it, or that the client has made; unique in ``queue`` of ``owner``.
        attempt: 1, 2, 3, ...
        fence: (epoch, counter): grows with each attempt. Whatever an older attempt says later changes nothing.
        age: seconds since it was put, when it was given.
    """

    __slots__ = ("_remaining", "age", "attempt", "fence", "id", "owner", "queue")

    def __init__(self, order: WorkOrder, remaining: Callable[[], float]) -> None:
        self.queue, self.owner, self.id = order.queue, order.owner, order.id
        self.attempt, self.fence, self.age = order.attempt, order.fence, order.age
        self._remaining = remaining

    def __repr__(self) -> str:
        return f"<Item {self.id!r} of {self.queue!r} at {self.owner}, attempt {self.attempt}>"

    def remaining(self) -> float:
        """Seconds for which nobody else can be given the item, by what this process knows now; 0: somebody may be.

        The lease renews itself while the router is heard from; it ends when that is silent, or nobody waits for the
        item's end any more.
        """
        return max(0.0, self._remaining())

    def check(self) -> None:
        """Raise if somebody else may be given the item.

        Raises:
            LeaseLost: so it is.
        """
        if self.remaining() <= 0:
            raise LeaseLost(
                f"the lease of item {self.id!r} of queue {self.queue!r} (attempt {self.attempt}) is over: another "
                "worker may have it; its queue server was not heard from in time, or waits for it no more"
            )


_current: ContextVar[Item | None] = ContextVar("rpcmq_item", default=None)


def current_item() -> Item | None:
    """The item that the current greenlet or thread works at; None outside of a worker's handler."""
    return _current.get()


def set_current_item(item: Item | None) -> None:
    """Set what :func:`current_item` returns here."""
    _current.set(item)
