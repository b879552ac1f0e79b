"""The home's side of requests that other routers own: a free consumer takes them at once, or they go back.

Nothing waits here for another router, so that whatever waits can be explained, and ended, where its sender is. What is
kept is a neighbour's turn among the requests that wait here: :mod:`rpcmq.core.router.mesh.rooms`.

The owner is told of each end: with the answer of a call, with SETTLE for a cast, with RETURNED if the consumer is gone.
"""

from __future__ import annotations

from rpcmq.core.router.forwarded import Forwarded
from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.mesh.neighbours import Neighbour
from rpcmq.core.router.mesh.origins import is_forged
from rpcmq.core.router.mesh.part import MeshContext, MeshPart
from rpcmq.core.router.mesh.places import Place, Tag, address_of_place
from rpcmq.core.router.mesh.rooms import Rooms
from rpcmq.core.router.model import Consumer, Delivery, Destination, Link, Request, Topic
from rpcmq.core.router.usage import MESSAGE_OVERHEAD
from rpcmq.errors import Outcome, ProtocolError
from rpcmq.payload.format import format_name
from rpcmq.wire import (
    ATTEMPT_AT,
    CONSUMER_AT,
    HEADER_BYTES,
    KEY,
    KEY_BYTES,
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
    ttl_of,
    unpack_request,
    with_address,
)
from rpcmq.wire.adoption import HERE_RECORD, Word
from rpcmq.wire.bodies import ErrorBody
from rpcmq.wire.consumer_name import ConsumerName

__all__ = ["Hosting"]

#: Settlements that are put into one message.
_TOGETHER = 100
# As in `rpcmq.core.router.roundrobin.dispatch`.
_CAST, _TOPIC = int(Kind.CAST), int(Tag.TOPIC)
_NO_KEY = bytes(KEY_BYTES)
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
        self._rooms = Rooms(dispatch)
        dispatch.requests.on_forwarded_ended = self._ended
        dispatch.departures.on_forwarded_lost = self._lost
        dispatch.deliveries.on_forwarded_replaced = self._replaced
        self.kinds = {
            Kind.REQUEST: self._take,
            Kind.CAST: self._take,
            Kind.CANCEL: dispatch.cancel,
            Kind.GRANT: dispatch.streams.grant,
            Kind.WANT: self._want,
            **context.roundrobin.request_streams.from_callers,
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
                self._rooms.rest(now, link, destination.server or destination.topic)
                self._send_back(link, Kind.BUSY, destination, key, form >> 8)
            return
        if flags & _FANOUT:
            self._dispatch.casts.fan_out_here(now, link, message, destination.hosted or destination.host())
            return
        if self._context.fenced and self._context.refuses(link, key, message[STAMP], destination.topic):
            return
        # As `_free_consumer` does, written out for most topics.
        consumer, usage, requests = destination.ready.alone, link.usage, self._requests
        if (
            consumer is None
            or len(consumer.in_flight) >= consumer.credit
            or self._refusing
            or self._rooms.kept
            or requests.draining
            or usage.size_bytes > self._settings.link_max_bytes
        ):
            consumer = self._free_consumer(link, destination)
            if consumer is None:
                self._send_back(link, Kind.BUSY, destination, key, form >> 8)
                return
        if not consumer.accepts >> (form & 0xFF) & 1:
            self._refuse_format(link, destination, key, consumer, form & 0xFF)
            self._dispatch.deliveries.deliver_waiting(now, consumer)  # it was kept for this one
            return
        if self._dispatch.deliveries.gate is not None and self._stops(now, link, destination, message):
            self._dispatch.deliveries.deliver_waiting(now, consumer)
            return
        is_call, calls = kind != _CAST, link.calls
        is_displaced = flags & _IDEMPOTENT and self._displaces(now, link, consumer, message, is_call)
        # The copy of a call for a group has its key.
        is_here = is_call and key in calls
        if key in consumer.in_flight or is_here:
            later = _stamp_of(consumer.in_flight[key]) if flags & _IDEMPOTENT and not is_here else b""
            if later > message[STAMP]:
                self._tell_later(link, destination, key, later)
            else:
                self._send_back(link, Kind.RETURNED, destination, key, form >> 8, _MAY_HAVE_STARTED)
            self._dispatch.deliveries.deliver_waiting(now, consumer)
            return
        request = Forwarded()
        request.owner, request.key, request.message = link, key, message
        request.destination = destination.hosted or destination.host()
        request.is_call = is_call
        request.reply_to = request.queue = request.delivery = request.slot = request.outcome = None
        request.ttl, request.attempts, request.kept = ttl, form >> 8, False
        request.number = requests.last_number
        request.received_at = now
        request.usage = usage
        request.charge = charge = (length if not flags & 1 else size_of(message)) + MESSAGE_OVERHEAD
        usage.size_bytes += charge
        if is_call:
            request.reply_to = link
            calls[key] = request
            requests.calls_in_flight += 1
            deadlines = requests.deadlines
            known = now <= deadlines.slot_until and ttl == deadlines.slot_ttl
            request.slot = slot = deadlines.slot if known else deadlines.slot_of(now, ttl)
            slot[request] = request
        self._dispatch.deliveries.give(now, request, consumer, message)
        if is_displaced:
            self._dispatch.deliveries.deliver_waiting(now, consumer)

    def _stops(self, now: float, link: Link, destination: Destination, message: bytes) -> bool:
        """Return whether no consumer may have ``message``, which the router at ``link`` owns: that is told why."""
        gate = self._dispatch.deliveries.gate
        request = Request()
        request.key, request.message, request.destination = message[KEY], message, destination
        request.is_call, request.reply_to, request.delivery = message[KIND_AT] != _CAST, link, None
        request.attempts, request.ttl, request.received_at = message[ATTEMPT_AT], ttl_of(message), now
        why = gate(now, request) if gate is not None else None
        if why is None:
            return False
        text, details = why
        address, sort = address_of_place(destination.server or destination.topic)
        body = ErrorBody(outcome=Outcome.CANCELLED, text=text, details=details)
        link.send(body.message(key=message[KEY], consumer=sort, address=address.encode()))
        return True

    def _displaces(self, now: float, link: Link, consumer: Consumer, message: bytes, is_call: bool) -> bool:
        """End earlier deliveries of an idempotent message that ``link`` offers; return whether ``consumer`` had one.

        Its sender has sent it again by way of another router. Or the same one has not reached this router for a while,
        and taken it for lost: sent back, it would come again at once, until it has been tried too often while it runs.
        """
        key, stamp = message[KEY], message[STAMP]
        call = link.calls.get(key) if is_call else None
        if call is not None and call.delivery is not None and call.delivery.consumer is not consumer:
            if _stamp_of(call.delivery) >= stamp:
                return False
            self._requests.cancel(now, call)
        former = consumer.in_flight.get(key)
        if former is None or _stamp_of(former) > stamp:
            return False
        self._tell_former(former, link, stamp)
        self._context.displace(now, consumer, key)
        return True

    def _tell_former(self, former: Delivery, link: Link, stamp: bytes) -> None:
        """The consumer of ``former`` has that for the router at ``link`` now: its former owner forgets it."""
        request = former.request
        if type(request) is Forwarded and request.owner is not link and stamp > _stamp_of(former):
            self._tell_later(request.owner, request.destination, request.key, stamp)

    def _replaced(self, request: Forwarded, stamp: bytes) -> None:
        """Its consumer has ``request`` for this router now, a later owner with ``stamp``."""
        self._tell_later(request.owner, request.destination, request.key, stamp)
        if not request.is_call:
            _end_cast(request, Outcome.CANCELLED)

    def _tell_later(self, owner: Link, destination: Destination, key: bytes, stamp: bytes) -> None:
        """Tell the router at ``owner`` that a message has a later owner, with ``stamp``: it gives the message up."""
        address, tag = address_of_place(destination.server or destination.topic)
        block, tag = (address.encode(), tag) if tag == Tag.GROUP else (b"", Tag.TOPIC)
        owner.send(pack(Kind.HERE, HERE_RECORD.pack(key, stamp, Word.NEWER), address=block, consumer=tag))

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
        if self._refusing or self._rooms.kept:
            place: Place = destination.server or destination.topic
            if place in self._refusing.get(link, ()):
                return None
            consumer = self._rooms.take(link, place)
            if consumer is not None:
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
                _end_cast(request, Outcome.LINK_LOST)
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
        refused = self._refusing.get(link, {})
        if refused.get(place) == message[KEY] if place is not None else message[KEY] != _NO_KEY:
            # Not by any WANT: one may have been sent before the BUSY was read, and what was offered before that would
            # be taken here, and taken back there. The answer comes after all that was sent back.
            block, tag = address_of(message), message[CONSUMER_AT]
            link.send(pack(Kind.ROOM, bytes(4), key=message[KEY], address=block, consumer=tag))
        if place is None:
            return
        if refused.get(place) == message[KEY]:
            del refused[place]
            if not refused:
                del self._refusing[link]  # what comes is taken the short way again
        self._rooms.want(now, link, place, int.from_bytes(payload))

    def tick(self, now: float) -> None:
        """Give room that was not used to others; see :class:`~rpcmq.core.router.mesh.rooms.Rooms`."""
        self._rooms.tick(now)

    def next_deadline(self) -> float:
        """The time at which unused room or tickets are looked for (monotonic seconds)."""
        return self._rooms.next_deadline()

    def neighbour_up(self, now: float, neighbour: Neighbour, resumed: bool) -> None:
        """It may have a turn again."""
        self.neighbour_changed(now, neighbour)

    def neighbour_changed(self, now: float, neighbour: Neighbour) -> None:
        """One that answers again has the turns that it has missed."""
        if neighbour.link.state is LinkState.ANSWERING:
            self._rooms.owner_answers(now, neighbour.link)

    def neighbour_gone(self, now: float, neighbour: Neighbour, reason: str) -> None:
        """Nothing is kept for it."""
        self._rooms.forget(now, neighbour.link)
        self._refusing.pop(neighbour.link, None)


def _end_cast(request: Forwarded, outcome: Outcome) -> None:
    """End a cast of another router here: that one is told, or need not be."""
    request.outcome = int(outcome)
    request.usage.size_bytes -= request.charge
    request.charge = 0


def _stamp_of(delivery: Delivery) -> bytes:
    """The stamp of the owner that ``delivery`` is of."""
    return bytes((delivery.request.message[STAMP][0], delivery.attempt))
