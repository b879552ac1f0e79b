"""The verbs of work queues."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar, Unpack

from rpcmq.client.base import BaseClient
from rpcmq.client.queue.offers import Offers
from rpcmq.client.queue.places import ItemPlace, place_of
from rpcmq.client.queue.puts import PutOptions
from rpcmq.client.queue.receipt import Receipt
from rpcmq.client.queue.settings import QueueSettings
from rpcmq.client.queue.steps import Steps, take
from rpcmq.client.shown_names import shown_as
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
        unique: str | None = None,
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
            keep_result: seconds for which the result is kept, for :meth:`rpcmq.Receipt.result`; 0: it is not.
            unique: while an item of the queue with the same text waits, which no worker has had, this one is not put,
                and the receipt's ``is_new`` is False.
            timeout: seconds to try it for; default: as for :meth:`call`.

        Returns:
            The item's receipt.

        Raises:
            PutRefused: nothing was put: no router has queues, the queue is full, the id is that of another item.
            PutUnknown: it may have been put, or not: the queue server does not answer.
            AccessDenied, PayloadError, RouterUnreachable, UsageError: as for :meth:`call`.
        """
        options = PutOptions(id, delay, priority, expires, key, keep_result, unique)
        steps = self._offers.one(self.process, ctx, queue, msg, options, self.put_seconds(timeout))
        return Receipt.of(take(steps, self._call_queue), self)

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
        uniques: Sequence[str | None] | None = None,
        timeout: float | None = None,
    ) -> list[Receipt]:
        """Put items at once, all or none, with one sync of the disk for all.

        Args:
            msgs: one for each item, 10,000 at the most.
            ids: one for each item; default: none.
            uniques: as ``unique`` of :meth:`put`, one for each item; None: no matter. Of those of one put with the same
                text the first is put.
            ctx, queue, delay, priority, expires, key, keep_result, timeout: as for :meth:`put`, for all of them.

        Returns:
            A receipt for each.

        Raises:
            PutRefused: none was put; but where an id is that of another item, the others are put, as the text says.
            PutUnknown, AccessDenied, PayloadError, RouterUnreachable, UsageError: as for :meth:`put`.
        """
        options = PutOptions(None, delay, priority, expires, key, keep_result)
        steps = self._offers.many(self.process, ctx, queue, msgs, ids, uniques, options, self.put_seconds(timeout))
        return [Receipt.of(place, self) for place in take(steps, self._call_queue)]

    def receipt(self, receipt: ItemPlace | str) -> Receipt:
        """A receipt that asks over this client, made of one from elsewhere, or of its text.

        Raises:
            UsageError: it is neither.
        """
        return Receipt.of(place_of(receipt), self)

    def declare_queue(
        self, queue: str, *, timeout: float | None = None, **settings: Unpack[QueueSettings]
    ) -> dict[str, Any]:
        """Give a queue settings, at all queue servers of the mesh, while it runs; it is made if it is not there.

        They are on disk at one queue server when this returns. It tells the others, also those that are away, when
        they come back. The last declaration counts.

        Args:
            queue: its name.
            timeout: seconds to try it for; default: as for :meth:`call`.
            settings: docs/queues.md has them all; what is not named stays as it is.

        Returns:
            All settings that the queue has now.

        Raises:
            UsageError: a setting is unknown or wrong.
            CallError, RouterUnreachable: no queue server has answered.
        """
        steps = self._offers.declare(self.process, queue, settings, self.put_seconds(timeout))
        return take(steps, self._call_queue)

    def declare_periodic(
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
        """Have an item put into a work queue at the times of a cron expression, each time once, until it is removed.

        It is on disk at one queue server when this returns, which puts the items from then on. In a mesh that is the
        one that has it already, wherever it is declared again; if that one is gone, the one that is asked. To declare
        it again changes it. Each item has the id ``NAME@TIME``, such as ``nightly@2026-11-24T02:00:00Z``.

        Args:
            ctx, msg: as for :meth:`put`, of all its items.
            queue: its queue, which is made if it is not there.
            name: that you give it, of 1 to 200 bytes, without an ``@``.
            cron: minute, hour, day of the month, month, day of the week, as in crontab(5); or six fields, the first of
                them the second.
            zone: of the expression, such as ``Europe/Berlin``.
            missed: what becomes of times that pass while the queue server is down, or its queue is full or drained:
                ``last`` puts the last one of them later, ``skip`` none that is older than a minute, ``all`` up to 100.
            priority, expires, key, unique: as for :meth:`put`.
            timeout: seconds to try it for; default: as for :meth:`call`.

        Returns:
            Its row, which has the ``owner`` and the ``next`` time as well.

        Raises:
            UsageError: the expression, the zone or something else cannot be; the text says what.
            CallError, PayloadError, RouterUnreachable: as for :meth:`declare_queue`.
        """
        options = PutOptions(None, 0.0, priority, expires, key, 0.0, unique)
        times = {"cron": cron, "zone": zone, "missed": missed}
        seconds = self.put_seconds(timeout)
        steps = self._offers.declare_periodic(self.process, ctx, queue, name, times, msg, options, seconds)
        return take(steps, self._call_queue)

    def remove_periodic(self, queue: str, name: str, *, timeout: float | None = None) -> bool:
        """Have the items of a periodic one put no more; those that are in their queue stay there.

        Returns:
            Whether it was there.

        Raises:
            CallError, RouterUnreachable: as for :meth:`declare_queue`.
        """
        steps = self._offers.remove_periodic(self.process, queue, name, self.put_seconds(timeout))
        return take(steps, self._call_queue)

    def take_steps(self, steps: Steps[T]) -> T:
        """Take all ``steps`` of a verb of queues; return their result."""
        return take(steps, self._call_queue)

    def decoded_result(self, address: Address, format: int, payload: bytes) -> Any:
        """The result of an item of the queue at ``address``."""
        payloads = self.process.payloads
        if self.shell.is_current or not payloads.limits:
            return payloads.item(address, format, payload)
        return self.home.run_here(payloads.item, address, format, payload)

    def put_seconds(self, timeout: float | None) -> float:
        """The time that a verb of queues may take (seconds)."""
        return self.sender.seconds(timeout)
