"""The verbs of work queues."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from rpcmq.client.base import BaseClient
from rpcmq.client.queue.puts import Producer, PutOptions, Receipt
from rpcmq.client.shown_names import shown_as
from rpcmq.errors import UsageError
from rpcmq.payload.bounded_text import short_repr
from rpcmq.wire import Address

__all__ = ["QueueVerbs"]

#: Items of one ``put_many``.
_MOST_ITEMS = 10_000


@shown_as("Client")
class QueueVerbs(BaseClient):
    """The verbs of work queues: put and put_many."""

    _producer: Producer | None = None
    _producer_of: object = None

    @abstractmethod
    def _call_queue(self, topic: Address, msg: Mapping[str, Any], timeout: float, *, mandatory: bool) -> Any:
        """Call a queue server."""

    def put(
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
        timeout: float | None = None,
    ) -> Receipt:
        """Put an item into a work queue; it is on disk when this returns, and is worked at until it is done.

        An answer that does not come is asked for again, with the same item: nothing is put twice by that.

        Args:
            ctx, msg: as for :meth:`call`; a worker runs the method.
            queue: its name. A queue is there with its first item.
            id: that you give the item: another put with the same id puts nothing, for as long as the queue remembers
                ids (a day). Without it each put is a new item.
            delay: seconds before which it is not given to a worker.
            priority: 0 to 9; the higher goes first.
            expires: seconds after which nobody wants it any more: it goes to the dead ones unless it has begun.
            key: of the items with the same key one runs at a time, in their order.
            keep_result: seconds for which the result is kept; 0: it is not.
            timeout: seconds to try it for; default: as for :meth:`call`.

        Returns:
            The item's receipt.

        Raises:
            PutRefused: nothing was put: no router has queues, the queue is full, the id is that of another item.
            PutUnknown: it may have been put, or not: the queue server does not answer.
            AccessDenied, PayloadError, RouterUnreachable, UsageError: as for :meth:`call`.
        """
        options = PutOptions(id, delay, priority, expires, key, keep_result)
        producer = self._items()
        return producer.put(queue, [producer.record(ctx, msg, options)], self._put_seconds(timeout))[0]

    def put_many(
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
        timeout: float | None = None,
    ) -> list[Receipt]:
        """Put items at once, all or none, with one sync of the disk for all.

        Args:
            msgs: one for each item, 10,000 at the most.
            ids: one for each item; default: none.
            ctx, queue, delay, priority, expires, key, keep_result, timeout: as for :meth:`put`, for all of them.

        Returns:
            A receipt for each.

        Raises:
            PutRefused, PutUnknown, AccessDenied, PayloadError, RouterUnreachable, UsageError: as for :meth:`put`.
        """
        if len(msgs) > _MOST_ITEMS:
            raise UsageError(f"put_many takes {_MOST_ITEMS} items at a time, not {len(msgs)}: put them in parts")
        if ids is not None and (len(ids) != len(msgs) or len(set(ids)) != len(ids)):
            raise UsageError(f"ids must be one for each of the {len(msgs)} items, and differ, not {short_repr(ids)}")
        producer = self._items()
        records = [
            producer.record(ctx, msg, PutOptions(id, delay, priority, expires, key, keep_result))
            for msg, id in zip(msgs, ids if ids is not None else [None] * len(msgs), strict=True)
        ]
        return producer.put(queue, records, self._put_seconds(timeout)) if records else []

    def _items(self) -> Producer:
        """The producer of this client; after a fork, which has copied that of the parent, a new one."""
        process = self.process
        if self._producer is None or self._producer_of is not process:
            self._producer, self._producer_of = Producer(self._call_queue, process.codec), process
        return self._producer

    def _put_seconds(self, timeout: float | None) -> float:
        return self.sender.seconds(timeout)
