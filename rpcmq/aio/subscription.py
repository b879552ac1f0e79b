"""A subscription whose handler runs in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from inspect import isawaitable
from typing import Any

from rpcmq.aio.bridge import Bridge
from rpcmq.aio.loop_port import LoopPort
from rpcmq.client.event_subscription import BaseSubscription, SubscriptionOwner
from rpcmq.client.interrupts import is_interrupt
from rpcmq.transport.home import Housed

__all__ = ["Handler", "Subscription"]

#: Called with context, topic and payload of an event; may be ``async``.
Handler = Callable[[Any, str, Any], object]


class Subscription(BaseSubscription):
    """One pattern and its handler, which runs in one task for all events, in order.

    It ends with the event loop, or when :meth:`close` is called.

    Attributes:
        pattern: as it was given.
        received: events that were handled, or are being handled.
        lost: events that this process lost because it was too slow to take them.
    """

    def __init__(
        self, bridge: Bridge, port: LoopPort, handler: Handler, context: Context, owner: SubscriptionOwner,
        client: Housed, pattern: str,
    ) -> None:  # fmt: skip
        super().__init__(owner, client, pattern)
        self._bridge = bridge
        self._port = port
        self._handler = handler
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        port.owners.append(self.end)
        port.post(self._begin, context)

    async def close(self) -> None:
        """Get no more events. A handler that runs goes on to its end."""
        await self._bridge.run(self.end)

    def end(self) -> None:
        """See :meth:`BaseSubscription.end`."""
        super().end()
        if self.end in self._port.owners:
            self._port.owners.remove(self.end)
        if self._port.loop.is_closed():
            self._drop_queue()

    def _wake(self) -> None:
        self._port.post(self._changed.set)

    # --- in the event loop -----------------------------------------------------------------------

    def _begin(self, context: Context) -> None:
        self._task = self._port.loop.create_task(self._run(), name=f"rpcmq {self.pattern}", context=context)

    async def _run(self) -> None:
        try:
            while not self._closed:
                await self._changed.wait()
                self._changed.clear()
                while self._queue and not self._closed:
                    await self._handle()
        finally:
            self._bridge.process.post(self.end)
            self._bridge.process.post(self._drop_queue)

    @property
    def _is_cancelled(self) -> bool:
        # Not every CancelledError says so: a handler may have awaited a task of its own that was cancelled.
        return self._task is not None and self._task.cancelling() > 0

    async def _handle(self) -> None:
        event = self._queue.popleft()
        link, bridge = event.link, self._bridge
        try:
            if bridge.posts:
                ctx, topic, payload = link.opened(event)
            else:
                ctx, topic, payload = await bridge.in_thread(link.opened, event)
            self.received += 1
            made = self._handler(ctx, topic, payload)
            if isawaitable(made):
                await made
        except BaseException as error:  # also SystemExit: the subscription goes on
            if isinstance(error, GeneratorExit) or self._is_cancelled:
                raise  # the event loop ends
            self._failed(error)
            if is_interrupt(error):
                raise
        finally:
            bridge.process.post(link.handled, event)
