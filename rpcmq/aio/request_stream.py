"""The stream that comes with a request, as a method in an event loop reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Self

from rpcmq.aio.bridge import Bridge
from rpcmq.client.request_stream import OVER
from rpcmq.client.request_stream import RequestStream as PlainRequestStream

__all__ = ["RequestStream", "TaskChanges"]

#: Longest wait before it is looked whether the caller is lost, which is not told when the router has restarted.
_LOOK_AGAIN = 1.0


class TaskChanges:
    """Tells those who wait in the event loop for changes of one task: for grants of its answer, items of its request.

    Args:
        post: calls a function in the event loop.
        former: is to be told, too: of a thread that runs the method.
    """

    __slots__ = ("_former", "_post", "_waiting")

    def __init__(self, post: Callable[..., object], former: Callable[[], object]) -> None:
        self._post = post
        self._former = former
        self._waiting: set[asyncio.Event] = set()

    def __call__(self) -> None:
        """The task has changed."""
        self._former()
        self._post(self._tell)

    def _tell(self) -> None:
        for event in self._waiting:
            event.set()

    def expect(self) -> asyncio.Event:
        """Return what is set from the next change on; to be given to :meth:`wait`, or to :meth:`forget`."""
        event = asyncio.Event()
        self._waiting.add(event)
        return event

    async def wait(self, event: asyncio.Event) -> None:
        """Wait for the change that ``event`` was expected for, but not for long: some changes are not told."""
        try:
            async with asyncio.timeout(_LOOK_AGAIN):
                await event.wait()
        except TimeoutError:
            pass  # a task is lost without notice when the router has restarted

    def forget(self, event: asyncio.Event) -> None:
        """Nobody waits for ``event``."""
        self._waiting.discard(event)


class RequestStream(PlainRequestStream):
    """Iterates with ``async for`` over the items of a stream that the caller sends as an argument, as they come.

    As :class:`rpcmq.RequestStream`, which it is for methods that are not ``async``, and so run in a thread.
    """

    #: Set by whoever makes it.
    bridge: Bridge
    changes: TaskChanges

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        message = None
        while message is None:
            # First: what changes while it is looked is seen.
            change = self.changes.expect()
            try:
                message = await self.bridge.run(self.take)
                if message is None:
                    await self.changes.wait(change)
            finally:
                self.changes.forget(change)
        if message is OVER:
            raise StopAsyncIteration
        return self.item_of(message) if self.bridge.posts else await self.bridge.in_thread(self.item_of, message)

    async def aclose(self) -> None:
        """As :meth:`rpcmq.RequestStream.close`."""
        await self.bridge.run(self.stop)
