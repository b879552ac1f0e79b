"""A worker whose methods run in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from inspect import isawaitable
from typing import Any, Unpack

from rpcmq.aio.client import Client
from rpcmq.aio.service import Service
from rpcmq.client.interrupts import is_interrupt
from rpcmq.client.methods import check_endpoint, is_async
from rpcmq.client.process import Process
from rpcmq.client.queue.attempts import Attempt, ItemEndpoint, begun
from rpcmq.client.queue.protocol import WORKERS, check_queue
from rpcmq.client.queue.transits import Transits
from rpcmq.client.served_methods import ServedMethods, check_context
from rpcmq.config import ConnectionSettings
from rpcmq.core.process.task import Task

__all__ = ["Worker"]


class Worker(Service):
    """Works at the items of ``queue`` in the event loop that starts it; see :class:`rpcmq.Worker`.

    An ``async`` method runs in a task of its own, any other in a thread, as those of :class:`rpcmq.aio.Service`.

    Args:
        queue, endpoint, context, router, identity, drain_seconds, settings: as for :class:`rpcmq.Worker`.
        concurrency: how many items run at once; more stay in the queue.
        client: as for :class:`rpcmq.aio.Service`.

    Raises:
        ConfigError, UsageError: as for :class:`rpcmq.aio.Service`.
    """

    def __init__(
        self,
        queue: str,
        endpoint: Any,
        *,
        concurrency: int = 64,
        context: Any = None,
        router: str | Sequence[str] | None = None,
        identity: str | None = None,
        client: Client | None = None,
        drain_seconds: float = 30.0,
        **settings: Unpack[ConnectionSettings],
    ) -> None:
        check_context(context)
        check_endpoint(endpoint, may_be_async=True)
        runner = _Runner(self)
        super().__init__(
            check_queue(queue), runner, router=router, identity=identity, client=client, exchange=WORKERS,
            concurrency=concurrency, drain_seconds=drain_seconds, **settings,
        )  # fmt: skip
        self.endpoint = endpoint
        self.item_methods = ServedMethods(endpoint, self.address, self.host, self.client, context)

    def process_of(self, task: Task) -> Process:
        """The engines of the link by which ``task`` came."""
        return self._consumer.at(task).process

    async def decoded(self, attempt: Attempt) -> dict[str, Any]:
        """The context and arguments of an item."""
        bridge = self._bridge
        return attempt.body(self.address) if bridge.posts else await bridge.in_thread(attempt.body, self.address)

    async def in_thread(self, method: Any) -> Any:
        """Run a method that is not ``async``."""
        return await self._threads.run(self._bridge.port(), method)


class _Runner(ItemEndpoint):
    """The endpoint that queue servers call, beside that of the program."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._transits = Transits()

    def _serves(self, name: str) -> bool:
        return self._worker.item_methods.has(name)

    async def run(self, ctx: Any, order: Sequence[Any]) -> list[Any]:
        """Work at an item."""
        attempt = begun(order, self._worker.process_of, self._transits)
        try:
            method = self._worker.item_methods.named(attempt.order.method, await self._worker.decoded(attempt))
            result = method() if is_async(method) else await self._worker.in_thread(method)
            return attempt.done(await result if isawaitable(result) else result)
        except BaseException as error:
            if is_interrupt(error) or isinstance(error, (GeneratorExit, asyncio.CancelledError)):
                raise
            raise attempt.raised(error) from None
