"""Requests go to consumers, or wait for one: the oldest first, to the least busy."""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import inf
from typing import Any, Protocol

from rpcmq.core.common.session import WINDOW_BYTES
from rpcmq.core.router.forwarded import Forwarded
from rpcmq.core.router.least_busy import ALONE
from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.model import Consumer, Delivery, Link, Request
from rpcmq.core.router.roundrobin import explain
from rpcmq.core.router.roundrobin.mailboxes import Mailboxes
from rpcmq.core.router.roundrobin.request_table import RequestTable
from rpcmq.core.router.roundrobin.restart_recovery import Recovery
from rpcmq.core.router.waiting_queue import Queue
from rpcmq.errors import Outcome, ProtocolError
from rpcmq.payload.format import format_name
from rpcmq.wire import (
    FORMAT_AT,
    NO_TTL,
    ORIGIN_OF_KEY,
    STAMP,
    Flag,
    Kind,
    for_consumer,
    for_next_attempt,
    pack,
)

__all__ = ["Deliveries"]

#: A message that waited for less (seconds) keeps its header, whose ttl is still accurate enough.
_NO_TIME = 0.001
#: Flags of messages that may start twice, or that no other router takes over.
_SENT_ANYWAY = Flag.IDEMPOTENT | Flag.FANOUT | Flag.STREAM


class Elsewhere(Protocol):
    """Takes requests to consumers of other routers."""

    def take(self, now: float, request: Request, is_older: bool = False) -> bool:
        """Give ``request`` to another router; return whether one takes it now."""

    def take_beside(self, now: float, request: Request) -> bool:
        """Give ``request``, which a consumer has, also to a router that has none of it; return whether one takes it."""

    def fan_out(self, request: Request) -> int:
        """Send a copy of the fanout ``request`` to each router with consumers; return how many these are together."""


class Deliveries:
    """Hands requests to consumers."""

    __slots__ = (
        "_links", "_mailboxes", "_recovery", "_requests", "elsewhere", "gate",
        "on_delivered", "on_forwarded_replaced", "on_protocol_error", "on_tickets", "tickets", "unheard",
    )  # fmt: skip

    def __init__(self, links: LinkTable, requests: RequestTable, recovery: Recovery, mailboxes: Mailboxes) -> None:
        self._links = links
        self._requests = requests
        self._recovery = recovery
        self._mailboxes = mailboxes
        #: Called with (now, link, message, error) where a message is refused after it was taken in.
        self.on_protocol_error: Callable[[float, Link, bytes, ProtocolError], None] = _nobody_listens
        #: Called with each delivery that was made, which is still in the outbox of its link; None: nobody watches.
        self.on_delivered: Callable[[Delivery], None] | None = None
        #: Called with (request of another router, stamp) when its consumer has that for a later owner, with that stamp.
        self.on_forwarded_replaced: Callable[[Forwarded, bytes], None] = lambda request, stamp: None
        #: Says of a request why no consumer may be given it; None: it may. None instead of this: all requests may.
        self.gate: Callable[[float, Request], explain.Explanation | None] | None = None
        #: Takes what finds no free consumer here.
        self.elsewhere: Elsewhere = _Nowhere()
        #: The tickets of other routers that wait for a free consumer; see :class:`rpcmq.core.router.forwarded.Ticket`.
        self.tickets: Collection[Any] = ()
        #: Called with (now, consumer, number) where there are tickets and ``consumer`` is free: whether its credit has
        #: gone to one that is older than the request ``number``.
        self.on_tickets: Callable[[float, Consumer, float], bool] = _nobody_has_tickets
        #: Consumers that no other router knows: of what waits they get nothing whose sender may be elsewhere.
        self.unheard: Collection[Consumer] = ()

    def stops(self, now: float, request: Request, caster: Link | None = None) -> bool:
        """Return whether no consumer may be given ``request``, which nobody has: it has ended then.

        Args:
            caster: the link of the sender if it is a cast that has just come.
        """
        why = self.gate(now, request) if self.gate is not None else None
        if why is None:
            return False
        if not request.is_call:
            request.destination.queue.count_dropped("quarantined")
        self._requests.refuse(now, request, caster, Outcome.CANCELLED, why)
        return True

    def deliver(self, now: float, request: Request, consumer: Consumer, caster: Link | None = None) -> bool:
        """Give ``request`` to ``consumer``.

        Args:
            caster: the link of the sender if it is a cast that has just come.

        Returns:
            Whether ``consumer`` got it; if not it has a message with that key already, and ``request`` has ended.
        """
        former = consumer.in_flight.get(request.key)
        if former is not None and self._takes_over(now, request, former):
            return True
        if former is not None and not self._replaces(now, request, former.request):
            self.end_repeated(now, request, former.request, caster)
            return False
        message, attempt = request.message, request.attempts
        waited = now - request.received_at
        if attempt or waited >= _NO_TIME:
            ttl = request.ttl
            if ttl != NO_TTL:
                ttl = max(0, ttl - int(waited * 1000))
            message = for_next_attempt(message, attempt, consumer.tag, ttl)
        self.give(now, request, consumer, message)
        return True

    def give(self, now: float, request: Request, consumer: Consumer, message: bytes) -> None:
        """Do as :meth:`deliver` with a request that has not waited, and whose key ``consumer`` has no message of.

        Args:
            message: that of the request, as it is to be sent, but for the tag of ``consumer``.
        """
        delivery = Delivery()
        delivery.request = request
        delivery.consumer = consumer
        delivery.attempt = request.attempts
        delivery.dispatched_at = now
        delivery.earlier = request.delivery
        request.delivery = consumer.in_flight[request.key] = delivery
        if consumer.level != ALONE:
            consumer.topic.ready.move(consumer)
        link = consumer.link
        link.outbox.append(for_consumer(message, consumer.tag) if consumer.tag else message)
        if not link.marked:
            link.mark()
        if self.on_delivered is not None:
            self.on_delivered(delivery)

    def route(
        self,
        now: float,
        request: Request,
        free: Consumer | None = None,
        caster: Link | None = None,
        is_older: bool = False,
    ) -> bool:
        """Not straight to a consumer: ``request`` waits, goes to one that accepts its format, or is refused.

        Args:
            free: the consumer that would be next, which may not accept the format, or has the key already.
            caster: as for :meth:`deliver`.
            is_older: it came before whatever waits.

        Returns:
            Whether it was taken; if not it has ended.
        """
        if free is not None and free.accepts >> request.message[FORMAT_AT] & 1:
            return self.deliver(now, request, free, caster)
        destination = request.destination
        remotes = (destination.server or destination.topic).remotes
        if remotes and self.elsewhere.take(now, request, is_older):
            return True
        consumers = destination.consumers
        form = request.message[FORMAT_AT]
        requests = self._requests
        requests.turns.spent += len(consumers) >> 4
        if consumers and not all(c.accepts >> form & 1 for c in consumers):
            accepts = 0xFF
            for consumer in consumers:
                accepts &= consumer.accepts
                if consumer.ready and consumer.accepts >> form & 1:
                    return self.deliver(now, request, consumer, caster)
            text = f"{destination.name!r} has no free consumer that accepts {format_name(form)} payloads"
            requests.refuse(now, request, caster, Outcome.PROTOCOL, (text, {"accepts": accepts}))
            return False
        is_absent = not remotes and not any(c.link.route is not None for c in consumers)
        if is_absent and request.flags & Flag.MANDATORY and not self._recovery.awaits_consumer(now, request):
            requests.refuse(now, request, caster, *explain.no_consumer(now, request))
            return False
        first = destination.queue.get(request.key)
        if first is not None and not self._replaces_waiting(now, request, first):
            self.end_repeated(now, request, first, caster)
            return False
        return self._mailboxes.put_or_refuse(now, request, caster)

    # --- consumers that become free ----------------------------------------------------------

    def deliver_waiting(self, now: float, consumer: Consumer) -> None:
        """Deliver waiting messages to ``consumer``, oldest first, while it is ready."""
        consumer.topic.ready.place(consumer)
        requests = self._requests
        fed_bytes = 0
        withheld: list[tuple[Queue[Request], Request]] | None = [] if consumer in self.unheard else None
        while consumer.ready:
            oldest: Queue[Request] | None = None
            least: float = inf
            for queue in consumer.queues:
                number = queue.head_number()
                if number is not None and number < least:
                    oldest, least = queue, float(number)
            if self.tickets and self.on_tickets(now, consumer, least):
                continue
            if oldest is None:
                break
            request = oldest.popleft()
            if withheld is not None and self._may_be_elsewhere(request):
                withheld.append((oldest, request))
                continue
            if request.reply_to is None:
                requests.deadlines.disarm(request)
            elif request.reply_to.state is LinkState.ENDED:
                requests.cancel(now, request)
                continue
            if self.gate is not None and self.stops(now, request):
                continue
            if consumer.accepts >> request.message[FORMAT_AT] & 1:
                self.deliver(now, request, consumer)
                fed_bytes += request.size
                if fed_bytes >= WINDOW_BYTES:
                    consumer.link.window_full()
            else:
                self._not_accepted(now, request, consumer, oldest)
        for queue, request in reversed(withheld or ()):
            queue.requeue(request)

    def _may_be_elsewhere(self, request: Request) -> bool:
        """Return whether another router may own ``request`` by now: its sender may have gone there, and asked again."""
        if request.flags & _SENT_ANYWAY:
            return False
        link = self._links.by_origin(request.key[ORIGIN_OF_KEY])
        return link is not None and link.follows_mesh and not link.is_responsive

    def _not_accepted(self, now: float, request: Request, consumer: Consumer, queue: Queue[Request]) -> None:
        text = f"{consumer.link.identity} does not accept {format_name(request.message[FORMAT_AT])} payloads"
        caster = self._links.by_origin(request.key[ORIGIN_OF_KEY])
        if not request.is_call:
            queue.count_dropped("format not accepted")
        self._requests.refuse(now, request, caster, Outcome.PROTOCOL, (text, {"accepts": consumer.accepts}))

    def deliver_again(self, now: float, requests: list[Request], unwilling: Consumer | None = None) -> None:
        """Requests whose consumers are lost, the oldest first: to others, or back to the heads of their queues.

        Args:
            unwilling: a consumer that has given them back, and gets them again if nobody else takes them.
        """
        waiting: list[Request] = []
        for request in requests:
            if self.gate is not None and self.stops(now, request):
                continue
            other = request.destination.pick()
            is_for_others = other is None or other is unwilling
            if is_for_others and request.destination.remotes and self.elsewhere.take(now, request, is_older=True):
                continue
            if other is None:
                waiting.append(request)
            elif other.accepts >> request.message[FORMAT_AT] & 1:
                self._requests.journal.note(now, request.key, "delivered again", other.link.identity)
                self.deliver(now, request, other)
            else:
                caster = self._links.by_origin(request.key[ORIGIN_OF_KEY])
                self.route(now, request, caster=caster, is_older=True)
        for request in reversed(waiting):
            queue = request.destination.queue
            self._requests.journal.note(now, request.key, "waits again")
            first = queue.get(request.key)
            if first is not None:
                self.end_repeated(now, request, first, None)
                continue
            if not request.is_call:
                self._requests.deadlines.arm_cast(now, request)
            queue.put_back(request)

    # --- keys that are used twice ------------------------------------------------------------

    def _replaces(self, now: float, request: Request, old: Request) -> bool:
        """Return whether ``request`` replaces ``old``: a caller whose link had ended has come back and asks again."""
        if not _is_deserted(old, request):
            return False
        # Late messages of the consumer about the earlier call must not be taken for this one.
        request.attempts = (old.attempts + 1) % 256
        if type(old) is Forwarded:
            self.on_forwarded_replaced(old, bytes((request.message[STAMP][0], request.attempts)))
        if not old.has_ended:
            self._requests.cancel(now, old)
        return True

    def _takes_over(self, now: float, request: Request, former: Delivery) -> bool:
        """Have the consumer of ``former``, which has the cast ``request`` for an earlier owner, have it for this one.

        Else nobody would give it to another consumer where this one gives it back, or is lost. Return False if this
        one is no later owner of a cast of another router.
        """
        old = former.request
        if type(old) is not Forwarded or old.is_call or request.is_call or not request.flags & Flag.IDEMPOTENT:
            return False
        if old.has_ended or request.message[STAMP][0] <= old.message[STAMP][0]:
            return False
        request.attempts = former.attempt
        self.on_forwarded_replaced(old, bytes((request.message[STAMP][0], former.attempt)))
        self.note_given(now, request, former.consumer, former.attempt)
        return True

    def note_given(self, now: float, request: Request, consumer: Consumer, attempt: int) -> None:
        """Note that ``consumer`` has ``request``, in that attempt, and need not be sent it."""
        delivery = Delivery()
        delivery.request, delivery.consumer, delivery.attempt = request, consumer, attempt
        delivery.dispatched_at, delivery.earlier = now, request.delivery
        request.delivery = consumer.in_flight[request.key] = delivery
        if consumer.level != ALONE:
            consumer.topic.ready.move(consumer)

    def _replaces_waiting(self, now: float, request: Request, old: Request) -> bool:
        """Do as :meth:`_replaces` where ``old`` waits: no consumer can say anything about it."""
        if not _is_deserted(old, request):
            return False
        self._requests.cancel(now, old)
        return True

    def end_repeated(self, now: float, request: Request, first: Request, caster: Link | None) -> None:
        """End ``request``, which has the key of ``first`` in the same place."""
        self._requests.journal.note(now, request.key, "came twice")
        if request.reply_to is not None:
            if self._requests.finish(now, request, Outcome.PROTOCOL):
                self.note_repeated(now, request.reply_to, request)
            return
        if request.kept and not first.kept and first.delivery is not None:
            self._requests.receipts.note(now, request)
        first.kept, request.kept = first.kept or request.kept, False
        self._requests.record(now, request, Outcome.PROTOCOL)
        if caster is not None:
            self._mailboxes.unstall(caster, request)
            self.note_repeated(now, caster, request)
        else:
            self._requests.counters["duplicate casts dropped"] += 1

    def note_repeated(self, now: float, link: Link, request: Request) -> None:
        """Report a reused sequence to ``link``, unless it has just come back and may not know better.

        A fanout may come by way of another router before its sender's own one, which was stopped, reads it.
        """
        is_elsewhere_too = link.follows_mesh and request.flags & Flag.FANOUT
        if not request.is_call and (request.flags & Flag.RESENT or is_elsewhere_too):
            self._requests.counters["duplicate casts dropped"] += 1
            if not request.flags & Flag.FANOUT:
                self.confirm(link, request)
            return
        self.on_protocol_error(
            now, link, request.message, ProtocolError("sequence of a message in flight", "duplicate")
        )

    def confirm(self, link: Link, request: Request, reached: int = 1) -> None:
        """Tell the sender of a cast, if it wants to know, how many consumers it will reach."""
        if request.flags & Flag.CONFIRM:
            link.send(pack(Kind.CONFIRM, reached.to_bytes(4), key=request.key))


def _is_deserted(old: Request, request: Request) -> bool:
    """Return whether ``old`` is a call of an earlier link of the caller of ``request``, with the same handle."""
    return old.is_call and request.is_call and old.reply_to is not request.reply_to


class _Nowhere:
    """There are no other routers."""

    def take(self, now: float, request: Request, is_older: bool = False) -> bool:
        """See :class:`Elsewhere`."""
        return False

    def take_beside(self, now: float, request: Request) -> bool:
        """See :class:`Elsewhere`."""
        return False

    def fan_out(self, request: Request) -> int:
        """See :class:`Elsewhere`."""
        return 0


def _nobody_has_tickets(now: float, consumer: Consumer, number: float) -> bool:
    return False


def _nobody_listens(now: float, link: Link, message: bytes, error: ProtocolError) -> None:
    pass
