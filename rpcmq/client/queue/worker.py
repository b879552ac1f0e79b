"""A worker: runs the items of a queue by the methods of an endpoint."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from functools import partial
from time import monotonic
from typing import Any, Unpack

from rpcmq.client.client import Client
from rpcmq.client.interrupts import is_interrupt
from rpcmq.client.methods import check_endpoint
from rpcmq.client.queue.items import Item, Reject, RetryLater, set_current_item
from rpcmq.client.queue.protocol import DONE, FAILED, REJECTED, WORKERS, WorkAnswer, WorkOrder, check_queue
from rpcmq.client.request import Request, current_request
from rpcmq.client.served_methods import ServedMethods, check_context
from rpcmq.client.service import Service
from rpcmq.config import ConnectionSettings
from rpcmq.errors import PayloadRefused
from rpcmq.payload.format import Format

__all__ = ["Worker"]

#: The lease is over so much earlier here than where the item came from (seconds).
_MARGIN = 1.0


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
        self._runner = runner = _Runner(self)
        super().__init__(
            check_queue(queue), runner, router=router, identity=identity, client=client, exchange=WORKERS,
            concurrency=concurrency, drain_seconds=drain_seconds, **settings,
        )  # fmt: skip
        runner.methods = ServedMethods(endpoint, self.address, self.host, self.client, context)

    def heard(self) -> float:
        """The time at which a router was heard from last (monotonic seconds)."""
        uplink = self.client.process.uplink
        return monotonic() if uplink.ready and not uplink.heard else uplink.heard


class _Runner:
    """The endpoint that queue servers call, beside that of the program."""

    #: The methods of the program's endpoint.
    methods: ServedMethods

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def run(self, ctx: Any, order: tuple[Any, ...]) -> tuple[Any, ...]:
        """Work at an item."""
        asked = WorkOrder(*order)._replace(fence=(order[4][0], order[4][1]))
        request = current_request()
        assert request is not None
        if asked.tell:
            request.progress(None)
        begun = monotonic()
        answer = self._work(asked, request)
        return tuple(answer._replace(seconds=monotonic() - begun))

    def _work(self, asked: WorkOrder, request: Request) -> WorkAnswer:
        set_current_item(Item(asked, partial(self._remaining, request, asked.lease)))
        try:
            result = self._result(asked)
            format, encoded = int(Format.JSON), b""
            if asked.wants_result:
                format, encoded = self._worker.client.process.codec.encode(result)
        except RetryLater as error:
            return WorkAnswer(FAILED, str(error), error.seconds)
        except Reject as error:
            return WorkAnswer(REJECTED, str(error))
        except BaseException as error:
            if is_interrupt(error):
                raise
            return WorkAnswer(FAILED, _traceback_of(error))
        finally:
            set_current_item(None)
        return WorkAnswer(DONE, format=format, result=encoded)

    def _result(self, order: WorkOrder) -> Any:
        worker = self._worker
        body = worker.client.process.payloads.item(worker.address, order.format, order.body)
        if type(body) is not dict:
            raise PayloadRefused(f"the item must be a mapping with context and args, not {type(body).__name__}")
        return self.methods.named(order.method, body)()

    def _remaining(self, request: Request, lease: float) -> float:
        if request.cancelled:
            return 0.0
        return self._worker.heard() + lease - _MARGIN - monotonic()


def _traceback_of(error: BaseException) -> str:
    # Without the frame of the runner itself.
    here = error.__traceback__.tb_next if error.__traceback__ is not None else None
    return "".join(traceback.format_exception(type(error), error, here)).rstrip()
