"""The receipt of a put by a task, which asks over the client that it was put with."""

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
    async def take_steps(self, steps: Steps[T]) -> T:
        """Take all ``steps``; return their result."""

    @abstractmethod
    async def decoded_result(self, address: Address, format: int, payload: bytes) -> Any:
        """The result of an item of the queue at ``address``."""

    @abstractmethod
    def put_seconds(self, timeout: float | None) -> float:
        """The time that a verb may take."""


class Receipt(BoundPlace[ReceiptClient]):
    """The proof that an item is in its queue, on disk, and the way to ask for it. See :class:`rpcmq.Receipt`."""

    async def state(self, timeout: float | None = None) -> ItemState:
        """The state of the item. See :meth:`rpcmq.Receipt.state`."""
        client = self._usable()
        return await client.take_steps(asking.state(self, client.put_seconds(timeout)))

    async def result(self, timeout: float | None = None) -> Any:
        """Wait until the item has ended; return what its method has returned. See :meth:`rpcmq.Receipt.result`."""
        client = self._usable()
        format, payload = await client.take_steps(asking.result(self, client.put_seconds(timeout)))
        return await client.decoded_result(at_owner(self.queue, self.owner), format, payload)

    async def cancel(self, timeout: float | None = None) -> bool:
        """End the item, if no worker has it. See :meth:`rpcmq.Receipt.cancel`."""
        client = self._usable()
        return await client.take_steps(asking.cancel(self, client.put_seconds(timeout)))
