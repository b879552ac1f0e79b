"""Middleware, retries and default options of a client for asyncio; see :mod:`rpcmq.client.middleware`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any, ClassVar

from rpcmq.aio.bridge import Bridge, ThreadPool
from rpcmq.aio.stream import Stream
from rpcmq.client.middleware import Middleware as PlainMiddleware
from rpcmq.client.middleware import OutgoingRequest, Tracing, one_attempt, with_defaults
from rpcmq.client.options import Defaults
from rpcmq.client.retry import Retry, RetryBudget, guarded_async
from rpcmq.client.stream_argument import stream_in
from rpcmq.errors import UsageError
from rpcmq.payload.bounded_text import short_repr

__all__ = ["Middleware", "Pipeline", "Send"]

#: Sends a request further in, and returns or raises what comes of it.
Send = Callable[[OutgoingRequest], Awaitable[Any]]
#: Calls at once through one middleware of plain functions, each of which takes a thread.
_THREADS = 64
_END: Any = object()


class Middleware:
    """Stands around the calls and casts of a client for asyncio. To be derived from; this one only passes on.

    It runs in the task that uses the verb. What it raises is what the verb raises: nothing catches it.
    """

    #: Whether it stands within the retries of a call, around each attempt, rather than around the whole.
    each_attempt: ClassVar[bool] = False

    async def __call__(self, request: OutgoingRequest, send: Send) -> Any:
        """Pass on ``request``, or another one, with ``send``, any number of times.

        Returns:
            The result of the verb, as ``send`` returns it (the result of a call, the iterator of a multicall, the count
            of a confirmed fanout, else None), or another one.
        """
        return await send(request)


#: Either kind: that for asyncio, or that of plain functions.
AnyMiddleware = Middleware | PlainMiddleware
Layer = Callable[[OutgoingRequest, Send], Awaitable[Any]]


class Pipeline:
    """The middleware, the retries and the default options of a client.

    Args:
        middleware: of the application. One of plain functions takes a thread for each call while that is under way.
        defaults: of options.
        budget: of retries.
        bridge: into the engines.

    Attributes:
        used: whether there is anything but retries: if not, a call without ``retry`` need not pass through here.

    Raises:
        UsageError: something in ``middleware`` is none.
    """

    def __init__(
        self, middleware: tuple[AnyMiddleware, ...], defaults: Defaults, budget: RetryBudget, bridge: Bridge
    ) -> None:
        for each in middleware:
            if not isinstance(each, AnyMiddleware):
                raise UsageError(
                    f"middleware must derive from rpcmq.aio.Middleware or rpcmq.Middleware; {short_repr(each)} does not"
                )
        self._defaults = defaults
        self._budget = budget
        self._bridge = bridge
        around = [self._layer(each) for each in middleware if not each.each_attempt]
        within = [self._layer(each) for each in middleware if each.each_attempt]
        self._layers: tuple[Layer, ...] = (*around, self._retried, *within)
        self.used = bool(middleware) or defaults.said

    def _layer(self, middleware: AnyMiddleware) -> Layer:
        if isinstance(middleware, Middleware):
            return middleware
        if type(middleware) is Tracing:
            return partial(_traced, middleware)
        # Threads of its own for each: one that waits for a further one's never waits for its own.
        return partial(_in_thread, ThreadPool(self._bridge.process, _THREADS, inside=False), self._bridge, middleware)

    async def run(self, request: OutgoingRequest, seconds: Callable[[float | None], float], send: Send) -> Any:
        """See :meth:`rpcmq.client.middleware.Pipeline.run`."""
        return await self._pass(0, send, with_defaults(request, self._defaults, seconds))

    async def _pass(self, layer: int, send: Send, request: OutgoingRequest) -> Any:
        if layer == len(self._layers):
            return await send(request)
        return await self._layers[layer](request, partial(self._pass, layer + 1, send))

    async def _retried(self, request: OutgoingRequest, send: Send) -> Any:
        if request.verb != "call" or not request.options.retry or stream_in(request.message) is not None:
            return await send(request)  # a stream can be read once
        on_progress = None if request.on_progress is None else guarded_async(request.on_progress)
        deadline = monotonic() + (request.options.timeout or 0.0)

        async def attempt() -> Any:
            return await send(replace(one_attempt(request, deadline), on_progress=on_progress))

        return await Retry.of(request.options.retry).run_async(attempt, deadline, self._budget, asyncio.sleep)


async def _traced(tracing: Tracing, request: OutgoingRequest, send: Send) -> Any:
    # It only looks, and does not wait: it needs no thread.
    return await send(tracing.traced(request))


async def _in_thread(
    pool: ThreadPool, bridge: Bridge, middleware: PlainMiddleware, request: OutgoingRequest, send: Send
) -> Any:
    """Run a middleware of plain functions in a thread; what it sends is sent by the event loop."""
    port = bridge.port()
    loop = port.loop
    sent: set[Future[Any]] = set()

    async def sending(further: OutgoingRequest) -> Any:
        return await send(further)

    def send_from_thread(further: OutgoingRequest) -> Any:
        future = asyncio.run_coroutine_threadsafe(sending(further), loop)
        sent.add(future)
        try:
            result = future.result()
        finally:
            sent.discard(future)
        return _PlainItems(result, loop) if isinstance(result, AsyncIterator) else result

    try:
        result = await pool.run(port, partial(middleware, request, send_from_thread))
    except asyncio.CancelledError:
        for future in list(sent):
            future.cancel()
        raise
    if isinstance(result, _PlainItems):
        return result.items
    return _items_from_thread(pool, bridge, result) if isinstance(result, Iterator) else result


class _PlainItems:
    """The items of a multicall, for a middleware of plain functions."""

    def __init__(self, items: AsyncIterator[Any], loop: asyncio.AbstractEventLoop) -> None:
        self.items = items
        self._loop = loop

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        item = asyncio.run_coroutine_threadsafe(anext(self.items, _END), self._loop).result()
        if item is _END:
            raise StopIteration
        return item

    def close(self) -> None:
        """Cancel the call."""
        if isinstance(self.items, Stream):
            asyncio.run_coroutine_threadsafe(self.items.aclose(), self._loop).result()


async def _items_from_thread(pool: ThreadPool, bridge: Bridge, items: Iterator[Any]) -> AsyncIterator[Any]:
    try:
        while (item := await pool.run(bridge.port(), partial(next, items, _END))) is not _END:
            yield item
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            await pool.run(bridge.port(), close)
