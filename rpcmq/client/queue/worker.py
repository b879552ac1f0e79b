"""A worker: runs the items of a queue by the methods of an endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from rpcmq.client.client import Client
from rpcmq.client.interrupts import is_interrupt
from rpcmq.client.methods import check_endpoint
from rpcmq.client.process import Process
from rpcmq.client.queue.attempts import Attempt, ItemEndpoint, begun
from rpcmq.client.queue.items import set_current_item
from rpcmq.client.queue.protocol import WORKERS, check_queue
from rpcmq.client.queue.transits import Transits
from rpcmq.client.served_methods import ServedMethods, check_context
from rpcmq.client.service import Service
from rpcmq.config import ConnectionSettings
from rpcmq.core.process.task import Task

__all__ = ["Worker"]


class Worker(Service):
    """Works at the items of ``queue``: runs the method of ``endpoint`` that each names.

    A method is called as ``method(ctx, **args)``, where :class:`rpcmq.Service` would call it. It returns: the item is
    done. It raises: the item is tried again, as the queue's settings say, and in the end goes to the dead ones with
    the traceback. It raises :class:`rpcmq.RetryLater` or :class:`rpcmq.Reject`: as that says.
    :func:`rpcmq.current_item` tells about the item.

    Args:
        queue: its name.
        endpoint: any object with methods, as for :class:`rpcmq.Service`.
        concurrency: how many items run at once; more stay in the queue. Default: 64 greenlets, or 16 threads.
        context: class with ``from_dict()`` that the contexts of items are made into; default: plain dict.
        router, identity, client, drain_seconds, settings: as for :class:`rpcmq.Service`.

    Raises:
        ConfigError, UsageError: as for :class:`rpcmq.Service`.
    """

    def __init__(
        self,
        queue: str,
        endpoint: Any,
        *,
        concurrency: int | None = None,
        context: Any = None,
        router: str | Sequence[str] | None = None,
        identity: str | None = None,
        client: Client | None = None,
        drain_seconds: float = 30.0,
        **settings: Unpack[ConnectionSettings],
    ) -> None:
        check_context(context)
        check_endpoint(endpoint)
        runner = _Runner(self)
        super().__init__(
            check_queue(queue), runner, router=router, identity=identity, client=client, exchange=WORKERS,
            concurrency=concurrency, drain_seconds=drain_seconds, **settings,
        )  # fmt: skip
        self.item_methods = ServedMethods(endpoint, self.address, self.host, self.client, context)

    def process_of(self, task: Task) -> Process:
        """The engines of the link by which ``task`` came."""
        return self._consumer.at(task).process


class _Runner(ItemEndpoint):
    """The endpoint that queue servers call, beside that of the program."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._transits = Transits()

    def _serves(self, name: str) -> bool:
        return self._worker.item_methods.has(name)

    def run(self, ctx: Any, order: Sequence[Any]) -> list[Any]:
        """Work at an item."""
        attempt = begun(order, self._worker.process_of, self._transits)
        try:
            return attempt.done(self._worker.item_methods.named(attempt.order.method, self._body(attempt))())
        except BaseException as error:
            if is_interrupt(error):
                raise
            raise attempt.raised(error) from None
        finally:
            set_current_item(None)

    def _body(self, attempt: Attempt) -> dict[str, Any]:
        worker = self._worker
        if worker.shell.is_current or not worker.client.process.payloads.limits:
            return attempt.body(worker.address)
        return worker.home.run_here(attempt.body, worker.address)
