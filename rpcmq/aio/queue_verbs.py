"""The verbs of work queues for asyncio: put, put_many, receipt, declare_queue, and those of periodic items."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar, Unpack

from rpcmq.aio.base import BaseClient
from rpcmq.aio.item_receipt import Receipt
from rpcmq.client.queue.offers import Offers
from rpcmq.client.queue.places import ItemPlace, place_of
from rpcmq.client.queue.puts import PutOptions
from rpcmq.client.queue.settings import QueueSettings
from rpcmq.client.queue.steps import Ask, End, Pause, Steps, next_step
from rpcmq.client.shown_names import shown_as
from rpcmq.errors import RpcError
from rpcmq.wire import Address

__all__ = ["QueueVerbs"]

T = TypeVar("T")


@shown_as("Client")
class QueueVerbs(BaseClient):
    """The verbs of work queues: put, put_many, receipt, declare_queue, and those of periodic items."""

    @cached_property
    def _offers(self) -> Offers:
        return Offers()

    @abstractmethod
    async def _call_queue(self, topic: Address, msg: Mapping[str, Any], timeout: float, *, mandatory: bool) -> Any:
        """Call a queue server."""

    async def put(
        self,
        ctx: Any,
        queue: str,
        msg: Mapping[str, Any],
        *,
        id: str | None = None,
        delay: float = 0.0,
        priority: int = 0,
        expires: float = 0.0,
        key: str | None = None,
        keep_result: float = 0.0,
        unique: str | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Put an item into a work queue; it is on disk when this returns. See :meth:`rpcmq.Client.put`.

        A task that is cancelled does not know whether the item was put, unless it puts it again with the same ``id``.
        """
        options = PutOptions(id, delay, priority, expires, key, keep_result, unique)
        caller = self.caller
        steps = self._offers.one(caller.bridge.process, ctx, queue, msg, options, self.put_seconds(timeout))
        return Receipt.of(await self.take_steps(steps), self)

    async def put_many(
        self,
        ctx: Any,
        queue: str,
        msgs: Sequence[Mapping[str, Any]],
        *,
        ids: Sequence[str] | None = None,
        delay: float = 0.0,
        priority: int = 0,
        expires: float = 0.0,
        key: str | None = None,
        keep_result: float = 0.0,
        uniques: Sequence[str | None] | None = None,
        timeout: float | None = None,
    ) -> list[Receipt]:
        """Put items at once, with one sync of the disk for all. See :meth:`rpcmq.Client.put_many`."""
        options = PutOptions(None, delay, priority, expires, key, keep_result)
        caller = self.caller
        seconds = self.put_seconds(timeout)
        steps = self._offers.many(caller.bridge.process, ctx, queue, msgs, ids, uniques, options, seconds)
        return [Receipt.of(place, self) for place in await self.take_steps(steps)]

    def receipt(self, receipt: ItemPlace | str) -> Receipt:
        """A receipt that asks over this client, made of one from elsewhere, or of its text.

        Raises:
            UsageError: it is neither.
        """
        return Receipt.of(place_of(receipt), self)

    async def declare_queue(
        self, queue: str, *, timeout: float | None = None, **settings: Unpack[QueueSettings]
    ) -> dict[str, Any]:
        """Give a queue settings, at all queue servers of the mesh. See :meth:`rpcmq.Client.declare_queue`."""
        process = self.caller.bridge.process
        return await self.take_steps(self._offers.declare(process, queue, settings, self.put_seconds(timeout)))

    async def declare_periodic(
        self,
        ctx: Any,
        queue: str,
        name: str,
        cron: str,
        msg: Mapping[str, Any],
        *,
        zone: str = "UTC",
        missed: str = "last",
        priority: int = 0,
        expires: float = 0.0,
        key: str | None = None,
        unique: str | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Have an item put again and again, by a cron expression. See :meth:`rpcmq.Client.declare_periodic`."""
        options = PutOptions(None, 0.0, priority, expires, key, 0.0, unique)
        times = {"cron": cron, "zone": zone, "missed": missed}
        process, seconds = self.caller.bridge.process, self.put_seconds(timeout)
        steps = self._offers.declare_periodic(process, ctx, queue, name, times, msg, options, seconds)
        return await self.take_steps(steps)

    async def remove_periodic(self, queue: str, name: str, *, timeout: float | None = None) -> bool:
        """Have the items of a periodic one put no more. See :meth:`rpcmq.Client.remove_periodic`."""
        process = self.caller.bridge.process
        return await self.take_steps(self._offers.remove_periodic(process, queue, name, self.put_seconds(timeout)))

    async def decoded_result(self, address: Address, format: int, payload: bytes) -> Any:
        """The result of an item of the queue at ``address``."""
        bridge = self.caller.bridge
        item = bridge.process.payloads.item
        if bridge.posts:
            return item(address, format, payload)
        return await bridge.in_thread(item, address, format, payload)

    def put_seconds(self, timeout: float | None) -> float:
        """The time that a verb of queues may take (seconds)."""
        return self.caller.sender.seconds(timeout)

    async def take_steps(self, steps: Steps[T]) -> T:
        """Take all ``steps`` in this task; return their result."""
        step = next_step(steps)
        while not isinstance(step, End):
            answer, error = None, None
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
            else:
                assert isinstance(step, Ask)  # tasks share no offers, and so wait for none
                try:
                    answer = await self._call_queue(step.topic, step.message, step.seconds, mandatory=step.mandatory)
                except RpcError as raised:
                    error = raised
            step = next_step(steps, answer, error)
        return step.result
