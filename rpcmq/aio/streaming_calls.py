"""Calls of tasks one of whose arguments is a stream: read in a task of its own, as fast as the handler takes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import copy_context
from functools import partial
from time import monotonic
from typing import Any

from rpcmq.aio.bridge import Bridge
from rpcmq.aio.loop_port import LoopPort
from rpcmq.client.stream_argument import StreamArgument
from rpcmq.client.stream_sender import encoded_item, end_failed, end_whole
from rpcmq.core.process.sent_streams import StreamingCall

__all__ = ["LoopStreamSender"]

_END: Any = object()
#: Longest wait before it is looked again whether more may be sent, and for the end of an iterable (seconds).
_LOOK_AGAIN, _PATIENCE = 1.0, 1.0


class LoopStreamSender:
    """The iterable of one call on its way out, in the event loop of the task that calls.

    An async iterable is read in a task of its own; of any other each item is asked for in a thread.

    Args:
        call: was started.
        name: of the argument.
    """

    def __init__(self, bridge: Bridge, call: StreamingCall, name: str, argument: StreamArgument) -> None:
        self._bridge = bridge
        self._port: LoopPort = bridge.port()
        self._call = call
        self._name = name
        self._argument = argument
        self._items: AsyncIterator[Any] | Iterator[Any] | None = None
        self._context = copy_context()
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._reading_since = 0.0
        call.on_change = partial(self._port.post, self._look)
        self._look()

    def _look(self) -> None:
        """More may be sent, or the call has ended. In the event loop."""
        self._changed.set()
        call = self._call
        if self._task is None:
            if call.may_send and not call.is_over:
                self._bridge.process.post(self._count, 1)
                self._task = self._port.loop.create_task(self._run(), context=self._context)
        elif self._reading_since and call.is_over and self._argument.is_async:
            self._task.cancel()

    def _count(self, change: int) -> None:
        self._bridge.process.calls.streams.open += change

    async def close(self) -> None:
        """Have the iterable closed, now that the call has ended, and wait for that where it does not take long."""
        self._look()
        if self._task is None:
            await self._close_items()
        elif not self._reading_since or self._argument.is_async:
            await asyncio.wait((self._task,), timeout=_PATIENCE)

    @property
    def waited_seconds(self) -> float:
        """For how long the iterable has been asked for an item (seconds); 0.0: it is not."""
        return monotonic() - self._reading_since if self._reading_since else 0.0

    # --- beside the caller -------------------------------------------------------------------

    async def _run(self) -> None:
        call, bridge = self._call, self._bridge
        process = bridge.process
        try:
            await self._send_all()
        except BaseException as error:
            if not call.is_over:
                record = await bridge.in_thread(process.codec.encode_exception, error, process.identity)
                await bridge.in_thread(end_failed, process, call, self._name, error, record)
        finally:
            process.post(self._count, -1)
            await self._close_items()

    async def _send_all(self) -> None:
        call, bridge = self._call, self._bridge
        process = bridge.process
        while await self._may_send():
            item = await self._next()
            if call.is_over:
                return
            if item is _END:
                await bridge.in_thread(end_whole, process, call)
                return
            if bridge.posts:
                form, flags, payload = encoded_item(process, call, item)
            else:
                form, flags, payload = await bridge.in_thread(encoded_item, process, call, item)
            # Awaited: it uses up credit.
            await bridge.run(process.calls.streams.send_item, monotonic(), call, form, payload, flags)

    async def _may_send(self) -> bool:
        """Wait until an item may be sent; return False if there is nobody to send it to any more."""
        call, changed = self._call, self._changed
        while not call.is_over and not call.may_send:
            # What changes in another thread is told here afterwards.
            changed.clear()
            try:
                async with asyncio.timeout(_LOOK_AGAIN):
                    await changed.wait()
            except TimeoutError:
                pass  # it may have ended without notice
        return not call.is_over

    async def _next(self) -> Any:
        self._reading_since = monotonic()
        try:
            if self._argument.is_async:
                if self._items is None:
                    self._items = aiter(self._argument.source)
                assert isinstance(self._items, AsyncIterator)
                return await anext(self._items, _END)
            if self._items is None:
                self._items = await self._in_thread(self._argument.items)
            return await self._in_thread(next, self._items, _END)
        finally:
            self._reading_since = 0.0

    async def _close_items(self) -> None:
        source: Any = self._items
        if source is None and not callable(getattr(self._argument.source, "read", None)):
            source = self._argument.source
        if (aclose := getattr(source, "aclose", None)) is not None:
            await aclose()
        elif callable(close := getattr(source, "close", None)):
            await self._in_thread(close)

    async def _in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call what is the application's, and may block, in a thread: to its end, also if this is cancelled."""
        run = partial(self._context.copy().run, function, *args)
        return await asyncio.shield(self._port.loop.run_in_executor(None, run))
