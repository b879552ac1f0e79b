"""A request, and each delivery of it to a consumer.

Their states and events are those of :mod:`rpcmq.core.router.request_states`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rpcmq.core.router.request_states import DeliveryState, RequestState
from rpcmq.core.router.usage import Usage
from rpcmq.core.router.waiting_queue import Queue
from rpcmq.wire import flags_of, size_of, without_payload

if TYPE_CHECKING:
    from rpcmq.core.router.consumer import Consumer
    from rpcmq.core.router.link import Link
    from rpcmq.core.router.topics import Destination

__all__ = ["Delivery", "Request"]


class Request:
    """A call or cast that the router tracks until it has ended.

    It waits in a queue, or is with the consumers of its deliveries: one, but for a request that was given to several.
    """

    __slots__ = (
        "attempts",
        "charge",
        "delivery",
        "destination",
        "is_call",
        "kept",
        "key",
        "message",
        "number",
        "outcome",
        "queue",
        "received_at",
        "reply_to",
        "slot",
        "ttl",
        "usage",
    )  # fmt: skip

    key: bytes
    message: bytes
    #: Whether somebody waits for an answer.
    is_call: bool
    #: The link that the answer goes to; None for a cast.
    reply_to: Link | None
    destination: Destination
    #: The queue in which it waits; None while it is delivered.
    queue: Queue[Request] | None
    #: The latest, which is with its consumer; None while there is none. See :meth:`deliveries`.
    delivery: Delivery | None
    #: Its outcome; None: it has not ended. It may be one that a consumer made up.
    outcome: int | None
    #: The deadline wheel's slot that holds it; None without a deadline. A call has one until it ends.
    slot: dict[Request, Request] | None
    #: Number of consumers that had it before and may have run it, modulo 256.
    attempts: int
    #: Whether its sender retains it until delivery is acknowledged.
    kept: bool
    #: Counts arrivals in the router, and the copies made there: the smaller is the older.
    number: int
    #: Milliseconds that it had left when it came; NO_TTL for no limit.
    ttl: int
    received_at: float
    #: The usage record charged for it, and the bytes charged; 0 before acceptance and after its end.
    usage: Usage
    charge: int

    @property
    def flags(self) -> int:
        """The flags of the message."""
        return flags_of(self.message)

    @property
    def size(self) -> int:
        """Bytes of the message with its payload."""
        return size_of(self.message)

    @property
    def has_ended(self) -> bool:
        """Whether it has ended for its sender, although a consumer may still have it."""
        return self.outcome is not None

    @property
    def state(self) -> RequestState:
        """Whether it waits, is with a consumer or has ended."""
        if self.outcome is not None:
            return RequestState.ENDED
        if self.queue is not None:
            return RequestState.WAITING
        return RequestState.DELIVERED if self.delivery is not None else RequestState.ROUTING

    @property
    def consumer(self) -> Consumer | None:
        """The consumer that has it, of several the latest; None: nobody."""
        return self.delivery.consumer if self.delivery is not None else None

    @property
    def dispatched_at(self) -> float:
        """The time of its delivery; until then, of its arrival (monotonic seconds)."""
        return self.delivery.dispatched_at if self.delivery is not None else self.received_at

    def deliveries(self) -> Iterator[Delivery]:
        """The deliveries that are with their consumers, the latest first."""
        delivery = self.delivery
        while delivery is not None:
            yield delivery
            delivery = delivery.earlier

    def take_back(self, delivery: Delivery) -> None:
        """``delivery`` is with its consumer no more."""
        if self.delivery is delivery:
            self.delivery = delivery.earlier
            return
        later = next(each for each in self.deliveries() if each.earlier is delivery)
        later.earlier = delivery.earlier

    def settled_by(self, delivery: Delivery) -> None:
        """Let go of ``delivery``: the two would keep each other, and the message, alive until the collector comes."""
        if self.delivery is delivery:
            self.delivery = delivery.earlier

    def copy(self, number: int) -> Request:
        """The same message as a request in its own right, for one more group or consumer."""
        copy = Request()
        copy.key, copy.message, copy.number = self.key, self.message, number
        copy.is_call, copy.reply_to, copy.destination = self.is_call, self.reply_to, self.destination
        copy.attempts, copy.ttl, copy.kept = self.attempts, self.ttl, False
        copy.received_at = self.received_at
        copy.queue = copy.delivery = copy.slot = copy.outcome = None
        copy.usage, copy.charge = self.usage, 0
        return copy

    def drop_payload(self) -> None:
        """Drop the payload: the message is delivered to nobody any more, but still counted."""
        self.message = without_payload(self.message)


class Delivery:
    """A request that was given to one consumer, and what that has said of it since."""

    __slots__ = ("attempt", "consumer", "dispatched_at", "earlier", "item_credit", "request")

    request: Request
    consumer: Consumer
    #: The number of consumers that had the request before and may have run it, modulo 256.
    attempt: int
    dispatched_at: float
    #: The delivery of the same request before this one that is still with its consumer.
    earlier: Delivery | None
    #: Items of a stream that may still be sent; not set before the first was, or was granted.
    item_credit: int

    @property
    def state(self) -> DeliveryState:
        """Whether its consumer has it, and anybody waits for what that does."""
        if self.consumer.in_flight.get(self.request.key) is not self:
            return DeliveryState.CLOSED
        return DeliveryState.OPEN if self.request.outcome is None else DeliveryState.ABANDONED
