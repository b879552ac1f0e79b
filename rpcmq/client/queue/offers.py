"""Items as a user gives them, checked and encoded, in the steps of a put."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rpcmq.client.process import Process
from rpcmq.client.queue.asking import declare
from rpcmq.client.queue.periodic import declare_periodic, remove_periodic
from rpcmq.client.queue.places import ItemPlace
from rpcmq.client.queue.protocol import MOST_ITEMS
from rpcmq.client.queue.puts import Producer, PutOptions
from rpcmq.client.queue.steps import Steps
from rpcmq.errors import UsageError
from rpcmq.payload.bounded_text import short_repr

__all__ = ["Offers"]


class Offers:
    """The puts of one client."""

    def __init__(self) -> None:
        self._producer: Producer | None = None
        self._producer_of: object = None

    def one(
        self, process: Process, ctx: Any, queue: str, msg: Mapping[str, Any], options: PutOptions, seconds: float
    ) -> Steps[ItemPlace]:
        """Put an item; see :meth:`rpcmq.Client.put`."""
        producer = self._producer_for(process)
        receipts = yield from producer.put(queue, [producer.record(ctx, msg, options)], seconds)
        return receipts[0]

    def many(
        self, process: Process, ctx: Any, queue: str, msgs: Sequence[Mapping[str, Any]], ids: Sequence[str] | None,
        uniques: Sequence[str | None] | None, options: PutOptions, seconds: float,
    ) -> Steps[list[ItemPlace]]:  # fmt: skip
        """Put items; see :meth:`rpcmq.Client.put_many`."""
        if len(msgs) > MOST_ITEMS:
            raise UsageError(f"put_many takes {MOST_ITEMS} items at a time, not {len(msgs)}: put them in parts")
        if ids is not None and (len(ids) != len(msgs) or len(set(ids)) != len(ids)):
            raise UsageError(f"ids must be one for each of the {len(msgs)} items, and differ, not {short_repr(ids)}")
        if uniques is not None and (isinstance(uniques, str) or len(uniques) != len(msgs)):
            raise UsageError(f"uniques must be one for each of the {len(msgs)} items, not {short_repr(uniques)}")
        producer = self._producer_for(process)
        all_options = [options] * len(msgs) if ids is None else [options.with_id(id) for id in ids]
        if uniques is not None:
            pairs = zip(all_options, uniques, strict=True)
            all_options = [each.with_unique(unique) for each, unique in pairs]
        records = [producer.record(ctx, msg, each) for msg, each in zip(msgs, all_options, strict=True)]
        if not records:
            return []
        return (yield from producer.put(queue, records, seconds))

    def declare(
        self, process: Process, queue: str, settings: Mapping[str, Any], seconds: float
    ) -> Steps[dict[str, Any]]:
        """Give a queue settings; see :meth:`rpcmq.Client.declare_queue`."""
        return declare(self._producer_for(process), queue, settings, seconds)

    def declare_periodic(
        self, process: Process, ctx: Any, queue: str, name: str, times: Mapping[str, str], msg: Mapping[str, Any],
        options: PutOptions, seconds: float,
    ) -> Steps[dict[str, Any]]:  # fmt: skip
        """Have an item put again and again; see :meth:`rpcmq.Client.declare_periodic`."""
        producer = self._producer_for(process)
        return declare_periodic(producer, queue, name, times, producer.record(ctx, msg, options), seconds)

    def remove_periodic(self, process: Process, queue: str, name: str, seconds: float) -> Steps[bool]:
        """Have it put no more; see :meth:`rpcmq.Client.remove_periodic`."""
        return remove_periodic(self._producer_for(process), queue, name, seconds)

    def _producer_for(self, process: Process) -> Producer:
        """The producer of this client; after a fork, which has copied that of the parent, a new one."""
        if self._producer is None or self._producer_of is not process:
            self._producer, self._producer_of = Producer(process.codec, process.shell), process
        return self._producer
