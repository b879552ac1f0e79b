"""The home's side of requests that other routers own: a free consumer takes them at once, or they go back.

Nothing waits here for another router, so that whatever waits can be explained, and ended, where its sender is. What is
kept is a neighbour's turn (:class:`rpcmq.core.router.forwarded.Ticket`) among the requests that wait here: when it has
come, the credit of a consumer is reserved for it (ROOM), for a moment.

The owner is told of each end: with the answer of a call, with SETTLE for a cast, with RETURNED if the consumer is gone.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf

from rpcmq.core.router.forwarded import Forwarded, Ticket
from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.mesh.neighbours import Neighbour
from rpcmq.core.router.mesh.origins import is_forged
from rpcmq.core.router.mesh.part import MeshContext, MeshPart
from rpcmq.core.router.mesh.places import Place, Tag, address_of_place
from rpcmq.core.router.model import Consumer, Delivery, Destination, Link, Server, Topic
from rpcmq.core.router.usage import MESSAGE_OVERHEAD
from rpcmq.errors import Outcome, ProtocolError
from rpcmq.payload.format import format_name
from rpcmq.wire import (
    CONSUMER_AT,
    HEADER_BYTES,
    KEY,
    KIND_AT,
    ORIGIN_OF_KEY,
    SETTLEMENT,
    STAMP,
    Address,
    Flag,
    Kind,
    address_of,
    for_consumer,
    method_of,
    pack,
    payload_of,
    size_of,
    unpack_request,
    with_address,
)
from rpcmq.wire.bodies import ErrorBody
from rpcmq.wire.consumer_name import ConsumerName

__all__ = ["Hosting"]

#: Room that its neighbour does not use is given to others after this (seconds).
_KEPT = 1.0
#: Tickets for places that nobody consumes any more are looked for so often (seconds).
_SWEPT = 10.0
#: Settlements that are put into one message.
_TOGETHER = 100
# As in `rpcmq.core.router.roundrobin.dispatch`.
_CAST, _TOPIC = int(Kind.CAST), int(Tag.TOPIC)
_FANOUT, _IDEMPOTENT = Flag.FANOUT, Flag.IDEMPOTENT
_NOT_STARTED, _MAY_HAVE_STARTED, _GOES_ON = b"\0", b"\1", b"\2"


class Hosting(MeshPart):
    """Gives requests of neighbours to consumers that are free."""

    def __init__(self, context: MeshContext) -> None:
        self._context = context
        self._settings = context.node.settings
        self._directory = context.node.directory
        self._destinations = context.node.directory.destinations
        self._origins = context.node.links.origins
        self._dispatch = dispatch = context.roundrobin.dispatch
        self._requests = dispatch.requests
        #: Places for which nothing is taken from a neighbour until it has read that: key of the first that came back.
        self._refusing: dict[Link, dict[Place, bytes]] = {}
        #: The oldest first.
        self._tickets: dict[Place, dict[Link, Ticket]] = {}
        self._rooms: dict[Link, dict[Place, deque[_Room]]] = {}
        self._next_look = 0.0
        self._next_sweep = inf
        dispatch.requests.on_forwarded_ended = self._ended
        dispatch.departures.on_forwarded_lost = self._lost
        dispatch.deliveries.tickets = self._tickets
        dispatch.deliveries.on_tickets = self._call_ticket
        self.kinds = {
            Kind.REQUEST: self._take,
            Kind.CAST: self._take,
            Kind.CANCEL: dispatch.cancel,
            Kind.GRANT: dispatch.streams.grant,
            Kind.WANT: self._want,
        }

    # --- requests ----------------------------------------------------------------------------

    def _take(self, now: float, link: Link, message: bytes) -> None:
        """REQUEST or CAST that ``link`` owns: to a consumer, or back."""
        (
            length, kind, flags, form, tag, ttl, key, address_length, method_length, trace_length,
        ) = unpack_request(message)  # fmt: skip
        cut = HEADER_BYTES + address_length + method_length
        destination = self._destinations.get(message[HEADER_BYTES:cut]) if tag == _TOPIC else None
        if destination is None or cut + trace_length > length:
            destination, message = self._resolved(now, message)
        if key[ORIGIN_OF_KEY] in self._origins and is_forged(now, self._context.node.links, self._settings, message):
            link.counters["forged origin"] += 1
            if not flags & _FANOUT:
                # Not an error: where a process has just gone on elsewhere, it is taken in a moment.
                self._send_back(link, Kind.BUSY, destination, key, form >> 8)
            return
        if flags & _FANOUT:
            self._dispatch.casts.fan_out_here(now, link, message, destination.hosted)
            return
        if self._context.fenced and self._context.refuses(link, key, message[STAMP], destination.topic):
            return
        consumer = self._free_consumer(link, destination)
        if consumer is None:
            self._send_back(link, Kind.BUSY, destination, key, form >> 8)
            return
        if not consumer.accepts >> (form & 0xFF) & 1:
            self._refuse_format(link, destination, key, consumer, form & 0xFF)
            return
        is_call, calls = kind != _CAST, link.calls
        # The copy of a call for a group has its key.
        is_here = is_call and key in calls
        if flags & _IDEMPOTENT and not is_here and _knows_it(consumer, key, message[STAMP]):
            # Its sender sends it again by way of another router, which gets the answer to what runs.
            self._context.displace(now, consumer, key)
        if key in consumer.in_flight or is_here:
            self._send_back(link, Kind.RETURNED, destination, key, form >> 8, _MAY_HAVE_STARTED)
            return
        request = Forwarded()
        request.owner, request.key, request.message = link, key, message
        request.destination = destination.hosted
        request.is_call = is_call
        request.reply_to = request.queue = request.delivery = request.slot = request.outcome = None
        request.ttl, request.attempts, request.kept = ttl, form >> 8, False
        requests = self._requests
        request.number = requests.last_number
        request.received_at = now
        request.usage = usage = link.usage
        request.charge = charge = (size_of(message) if flags & 1 else len(message)) + MESSAGE_OVERHEAD
        usage.size_bytes += charge
        if is_call:
            request.reply_to = link
            calls[key] = request
            requests.calls_in_flight += 1
            requests.deadlines.arm_call(now, request)
        self._dispatch.deliveries.deliver(now, request, consumer)

    def _refuse_format(self, link: Link, destination: Destination, key: bytes, consumer: Consumer, form: int) -> None:
        text = f"{consumer.link.identity} does not accept {format_name(form)} payloads"
        address, sort = address_of_place(destination.server or destination.topic)
        link.send(
            ErrorBody(outcome=Outcome.PROTOCOL, text=text).message(key=key, consumer=sort, address=address.encode())
        )

    def _resolved(self, now: float, message: bytes) -> tuple[Destination, bytes]:
        """The destination of ``message``, and the message as consumers know it."""
        if message[CONSUMER_AT] != Tag.GROUP:
            return self._directory.resolve(now, message), message
        address = Address.decode(address_of(message))
        whole = address._replace(server="")
        topic = self._directory.learn(now, whole, address.server)
        assert isinstance(topic, Topic)
        # The tag says that it is a group's; a consumer would take it for its own.
        message = for_consumer(with_address(message, whole.encode()), Tag.TOPIC)
        return self._directory.in_group(topic, method_of(message)), message

    def _free_consumer(self, link: Link, destination: Destination) -> Consumer | None:
        """The consumer that takes a request of ``link`` now; None if there is none, or others have waited longer."""
        if self._requests.draining:
            return None
        if self._refusing or self._rooms:
            place: Place = destination.server or destination.topic
            if place in self._refusing.get(link, ()):
                return None
            rooms = self._rooms.get(link)
            kept = rooms.get(place) if rooms else None
            while kept:
                consumer = kept.popleft().consumer
                self._release(consumer)
                if consumer.ready:
                    return consumer
        if link.usage.size_bytes > self._settings.link_max_bytes:
            return None
        return destination.pick()

    def _send_back(
        self, link: Link, kind: Kind, destination: Destination, key: bytes, attempt: int, payload: bytes = b""
    ) -> None:
        place: Place = destination.server or destination.topic
        address, tag = address_of_place(place)
        if kind == Kind.BUSY:
            self._refusing.setdefault(link, {}).setdefault(place, key)
        link.send(pack(kind, payload, key=key, attempt=attempt, address=address.encode(), consumer=tag))

    # --- ends --------------------------------------------------------------------------------

    def _ended(self, now: float, request: Forwarded, outcome: int, handler_us: int) -> None:
        """A request has ended otherwise than by the answer to a call: the owner of a cast is told."""
        if request.is_call:
            return
        link, record = request.owner, SETTLEMENT.pack(request.key, request.attempts, outcome, handler_us)
        report = self._context.report(now, request, request.consumer)
        if report is not None:
            record += report
        address, tag = address_of_place(request.destination.server or request.destination.topic)
        outbox = link.outbox
        if tag == Tag.TOPIC and outbox and outbox[-1][KIND_AT] == Kind.SETTLE and outbox[-1][CONSUMER_AT] == tag:
            before = payload_of(outbox[-1])
            if len(before) < _TOGETHER * len(record):
                outbox[-1] = pack(Kind.SETTLE, bytes(before) + record, format=report is not None)
                return
        block = address.encode() if tag == Tag.GROUP else b""
        link.send(pack(Kind.SETTLE, record, format=report is not None, address=block, consumer=tag))

    def _lost(self, now: float, delivery: Delivery, is_unsent: bool, reason: str) -> None:
        """The consumer of ``delivery`` is gone: its owner says what comes of the request."""
        request = delivery.request
        assert isinstance(request, Forwarded)
        if not request.has_ended:
            if request.is_call:
                self._requests.finish(now, request, Outcome.LINK_LOST)
            else:
                request.outcome = int(Outcome.LINK_LOST)
                request.usage.size_bytes -= request.charge
                request.charge = 0
        gone = delivery.consumer.link
        name, word = ConsumerName(gone.origin, gone.identity), _NOT_STARTED
        if not is_unsent:
            goes_on = self._context.may_go_on(gone, reason)
            self._context.note_departed(now, request, name, goes_on)
            word = _GOES_ON if goes_on else _MAY_HAVE_STARTED
        said = word + name.encode()
        self._send_back(request.owner, Kind.RETURNED, request.destination, request.key, request.attempts, said)

    # --- room --------------------------------------------------------------------------------

    def _want(self, now: float, link: Link, message: bytes) -> None:
        """WANT: ``link`` has read what was sent back, and so many requests wait there."""
        payload = payload_of(message)
        if len(payload) != 4:
            raise ProtocolError("WANT needs a count of 4 bytes", "length")
        place = self._context.places.named_by(message)
        if place is None:
            return
        refused = self._refusing.get(link, {})
        if refused.get(place) == message[KEY]:
            # Not by any WANT: one may have been sent before the BUSY was read, and what was offered before that would
            # be taken here, and taken back there.
            del refused[place]
        self._withdraw_ticket(link, place)
        self._take_back_room(now, link, place)
        count = int.from_bytes(payload)
        if not count:
            return
        ticket = Ticket(link, count, self._requests.last_number)
        is_nobody_waiting = not place.queue and place not in self._tickets
        while ticket.count and is_nobody_waiting and (consumer := _pick(place)) is not None:
            self._give_room(now, ticket, consumer, place)
        if ticket.count:
            self._tickets.setdefault(place, {})[link] = ticket
            self._next_sweep = min(self._next_sweep, now + _SWEPT)

    def _withdraw_ticket(self, link: Link, place: Place) -> None:
        tickets = self._tickets.get(place)
        if tickets is not None and tickets.pop(link, None) is not None and not tickets:
            del self._tickets[place]

    def _call_ticket(self, now: float, consumer: Consumer, number: float) -> bool:
        """Give credit of ``consumer``, which is free, to the oldest ticket; return whether that could be.

        Args:
            number: of the oldest request that waits for it: one that is older goes first.
        """
        topic = consumer.topic
        oldest: Ticket | None = None
        where: Place = topic
        for place in (topic, topic.servers[consumer.server]):
            for ticket in self._tickets.get(place, {}).values():
                if ticket.owner.state is not LinkState.ANSWERING:
                    continue  # it has its turn when it answers again
                if ticket.number < number and (oldest is None or ticket.number < oldest.number):
                    oldest, where = ticket, place
                break
        if oldest is None:
            return False
        self._give_room(now, oldest, consumer, where)
        if not oldest.count:
            self._withdraw_ticket(oldest.owner, where)
        return True

    def _give_room(self, now: float, ticket: Ticket, consumer: Consumer, place: Place) -> None:
        """Reserve credit of ``consumer`` for the owner of ``ticket``, and tell it."""
        free = consumer.credit - len(consumer.in_flight)
        is_contended = any(consumer.queues) or any(owner is not ticket.owner for owner in self._tickets.get(place, ()))
        count = min(ticket.count, 1 if is_contended else free)
        consumer.reserve(count)
        consumer.topic.ready.move(consumer)
        kept = self._rooms.setdefault(ticket.owner, {}).setdefault(place, deque())
        kept.extend(_Room(consumer, now + _KEPT) for _ in range(count))
        self._next_look = min(self._next_look, now + _KEPT) if self._next_look else now + _KEPT
        address, tag = address_of_place(place)
        ticket.owner.send(pack(Kind.ROOM, count.to_bytes(4), address=address.encode(), consumer=tag))
        ticket.count -= count

    def _take_back_room(self, now: float, link: Link, place: Place) -> None:
        for room in self._rooms.get(link, {}).pop(place, ()):
            self._release(room.consumer)
            self._dispatch.deliveries.deliver_waiting(now, room.consumer)

    def _release(self, consumer: Consumer) -> None:
        consumer.release()
        consumer.topic.ready.move(consumer)

    def tick(self, now: float) -> None:
        """Give room that was not used to others, and forget tickets that nobody will serve."""
        if now >= self._next_sweep:
            # Their owners know that there are no consumers, and begin anew when some come.
            for place in [place for place in self._tickets if not place.consumers]:
                del self._tickets[place]
            self._next_sweep = now + _SWEPT if self._tickets else inf
        if not self._next_look or now < self._next_look:
            return
        self._next_look = 0.0
        for rooms in list(self._rooms.values()):
            for place, kept in list(rooms.items()):
                while kept and kept[0].until <= now:
                    consumer = kept.popleft().consumer
                    self._release(consumer)
                    self._dispatch.deliveries.deliver_waiting(now, consumer)
                if kept:
                    self._next_look = min(self._next_look or kept[0].until, kept[0].until)
                else:
                    del rooms[place]

    def next_deadline(self) -> float:
        """The time at which unused room or tickets are looked for (monotonic seconds)."""
        return min(self._next_look or inf, self._next_sweep)

    def neighbour_up(self, now: float, neighbour: Neighbour, resumed: bool) -> None:
        """It may have a turn again."""
        self.neighbour_changed(now, neighbour)

    def neighbour_changed(self, now: float, neighbour: Neighbour) -> None:
        """One that answers again has the turns that it has missed."""
        link = neighbour.link
        if link.state is not LinkState.ANSWERING:
            return
        for place in [place for place, tickets in self._tickets.items() if link in tickets]:
            while place in self._tickets and (consumer := _pick(place)) is not None:
                if not self._call_ticket(now, consumer, inf):
                    break

    def neighbour_gone(self, now: float, neighbour: Neighbour, reason: str) -> None:
        """Nothing is kept for it."""
        link = neighbour.link
        # First, or what is taken back would be kept for it again.
        for place in list(self._tickets):
            self._withdraw_ticket(link, place)
        for place in list(self._rooms.get(link, ())):
            self._take_back_room(now, link, place)
        self._rooms.pop(link, None)
        self._refusing.pop(link, None)


@dataclass(slots=True)
class _Room:
    """Credit of a consumer, for one request of a neighbour."""

    consumer: Consumer
    until: float


def _pick(place: Place) -> Consumer | None:
    return place.pick() if isinstance(place, Server) else place.ready.pick()


def _knows_it(consumer: Consumer, key: bytes, stamp: bytes) -> bool:
    """Whether ``consumer`` has a message, and its process starts it no second time for an owner with ``stamp``."""
    former = consumer.in_flight.get(key)
    if former is None or not consumer.link.follows_mesh:
        return False
    return bytes((former.request.message[STAMP][0], former.attempt)) <= stamp
