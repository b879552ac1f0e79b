"""The receipt of a put, which asks over the client that it was put with."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Protocol, TypeVar

from rpcmq.client.queue import asking
from rpcmq.client.queue.places import BoundPlace, ItemState
from rpcmq.client.queue.protocol import at_owner
from rpcmq.client.queue.steps import Steps
from rpcmq.wire import Address

__all__ = ["Receipt", "ReceiptClient"]

T = TypeVar("T")


class ReceiptClient(Protocol):
    """A client, as far as a receipt uses it."""

    @abstractmethod
    def take_steps(self, steps: Steps[T]) -> T:
        """Take all ``steps``; return their result."""

    @abstractmethod
    def decoded_result(self, address: Address, format: int, payload: bytes) -> Any:
        """The result of an item of the queue at ``address``."""

    @abstractmethod
    def put_seconds(self, timeout: float | None) -> float:
        """The time that a verb may take."""


class Receipt(BoundPlace[ReceiptClient]):
    """The proof that an item is in its queue, on disk, and the way to ask for it.

    It can be pickled, and stored as text (``str(receipt)``): then ``client.receipt(it)`` makes one again that can ask.
    """

    def state(self, timeout: float | None = None) -> ItemState:
        """The state of the item.

        Args:
            timeout: seconds; default: as for :meth:`rpcmq.Client.call`.

        Raises:
            CallError, RouterUnreachable: its owner does not answer, or has no such queue.
            UsageError: the receipt does not know the item's place, or has no client.
        """
        client = self._usable()
        return client.take_steps(asking.state(self, client.put_seconds(timeout)))

    def result(self, timeout: float | None = None) -> Any:
        """Wait until the item has ended; return what its method has returned.

        Args:
            timeout: seconds to wait; default: as for :meth:`rpcmq.Client.call`.

        Raises:
            CallTimeout: it has not ended yet.
            ItemDead: it has ended without being done; the text has the reason, and the traceback of the last attempt.
            NoResult: it is done and its result was not kept, or not for so long; or it was cancelled.
            PayloadRefused: its result is not decoded here.
            CallError, RouterUnreachable, UsageError: as for :meth:`state`.
        """
        client = self._usable()
        format, payload = client.take_steps(asking.result(self, client.put_seconds(timeout)))
        return client.decoded_result(at_owner(self.queue, self.owner), format, payload)

    def cancel(self, timeout: float | None = None) -> bool:
        """End the item, if no worker has it.

        Returns:
            Whether it has ended by that. If not, a worker has it or may have it, it is dead, or it had ended before,
            which :meth:`state` tells. Another item in its place is left alone.

        Raises:
            CallError, RouterUnreachable, UsageError: as for :meth:`state`.
        """
        client = self._usable()
        return client.take_steps(asking.cancel(self, client.put_seconds(timeout)))
