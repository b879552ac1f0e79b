"""The owner's side of requests that consumers of other routers take.

A request waits at its owner and nowhere else. When no consumer here is free, it is offered to the neighbour that is
least busy with what this router has given it, up to the capacity it has told. One whose consumers are busy sends it
back (BUSY). From then on it is offered only what it has made room for: it is told how many wait (WANT), and says how
many it takes (ROOM).

**Order.** A neighbour that has sent back one request for an address sends back all that follow, until it reads the
WANT by which this router shows that it has read the BUSY. And this router takes back all that it has offered after the
one that came back, at once: so what was sent first is first in the queue again, whoever takes it next. Either half
alone breaks the order (``tests/mesh/order.py``). Nothing is offered there until the WANT is answered.
"""

from __future__ import annotations

from itertools import dropwhile

from rpcmq.core.common.text import shorten
from rpcmq.core.router.actions import LogEvent
from rpcmq.core.router.base_link import BaseLink
from rpcmq.core.router.forwarded import Elsewhere
from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.mesh.neighbours import Neighbour
from rpcmq.core.router.mesh.offered_work import CopiesElsewhere, OfferedWork
from rpcmq.core.router.mesh.part import MeshContext, MeshPart
from rpcmq.core.router.mesh.places import Place, Tag
from rpcmq.core.router.mesh.wants import want, want_more
from rpcmq.core.router.model import Consumer, Delivery, Link, Request
from rpcmq.core.router.remotes import Remote
from rpcmq.core.router.request_states import DeliveryState
from rpcmq.errors import Outcome, ProtocolError
from rpcmq.wire import (
    ATTEMPT_AT,
    CONSUMER_AT,
    FORMAT_AT,
    KEY,
    MAX_SETTLEMENTS,
    SETTLEMENT,
    TRACE_LENGTH_AT,
    Flag,
    Kind,
    address_of,
    for_consumer,
    pack,
    payload_of,
    with_address,
    without_flag,
)
from rpcmq.wire.bodies import ErrorBody
from rpcmq.wire.consumer_name import ConsumerName
from rpcmq.wire.run_report import REPORTED_SETTLEMENT, split_report

__all__ = ["Forwarding"]

_OUTCOMES = frozenset(map(int, Outcome))


class Forwarding(MeshPart):
    """Offers requests to neighbours, and takes back what they return."""

    def __init__(self, context: MeshContext) -> None:
        self._context = context
        self._dispatch = dispatch = context.roundrobin.dispatch
        self._requests = dispatch.requests
        # Bound once: they are on the path of each call.
        self._take_reply, self._deliveries = dispatch.reply, dispatch.deliveries
        self._work = context.offered
        dispatch.held_elsewhere.append(CopiesElsewhere(self._work))
        dispatch.deliveries.elsewhere = self
        context.places.on_changed.append(self._place_changed)
        self.kinds = {
            Kind.REPLY: self._reply,
            Kind.FAULT: self._reply,
            Kind.END: self._reply,
            Kind.ITEM: dispatch.streams.item,
            Kind.ALIVE: dispatch.streams.item,
            Kind.SETTLE: self._settle,
            Kind.ERROR: self._error,
            Kind.BUSY: self._busy,
            Kind.ROOM: self._room,
            Kind.RETURNED: self._returned,
            **context.roundrobin.request_streams.from_consumers,
        }

    # --- neighbours --------------------------------------------------------------------------

    def neighbour_up(self, now: float, neighbour: Neighbour, resumed: bool) -> None:
        """It may be offered requests as soon as it has told its consumers."""
        if not resumed:
            self._work[neighbour.link] = OfferedWork(neighbour.link)

    def neighbour_changed(self, now: float, neighbour: Neighbour) -> None:
        """One that answers again gets what waits."""
        if neighbour.is_usable:
            self._feed_all(now, neighbour.link)

    def neighbour_has_room(self, now: float, neighbour: Neighbour) -> None:
        """It gets what waits."""
        self._feed_all(now, neighbour.link)

    def neighbour_gone(self, now: float, neighbour: Neighbour, reason: str) -> None:
        """Its requests go to others where that is allowed, and end where it is not."""
        work = self._work.pop(neighbour.link, None)
        if work is None:
            return
        for consumer in work.all():
            self._dispatch.departures.consumer_gone(now, consumer, reason)
        neighbour.link.consumers = {}

    def _feed_all(self, now: float, link: BaseLink) -> None:
        for topic in list(self._context.node.directory):
            places: list[Place] = [topic, *topic.servers.values()]
            for place in places:
                remote = place.remotes.get(link)
                if remote is None:
                    continue
                for delivery in [each for each in remote.offered.values() if each.state is DeliveryState.CLOSED]:
                    del remote.offered[delivery.request.key]  # it went elsewhere while the neighbour was away
                if place.queue:
                    self._feed(now, place, remote)

    def _place_changed(self, now: float, place: Place, remote: Remote[Delivery]) -> None:
        if (work := self._work.get(remote.link)) is not None:
            work.update(place)
        if not remote.consumers:
            if remote.room or remote.wanted:
                want(place, remote, 0)  # else our turn would wait there for ever
        elif place.queue:
            self._feed(now, place, remote)

    # --- offers ------------------------------------------------------------------------------

    def take(self, now: float, request: Request, is_older: bool = False) -> bool:
        """Offer ``request``, which finds no free consumer here, to the least busy neighbour, if one can take it.

        Args:
            is_older: it came before whatever waits.
        """
        destination = request.destination
        place: Place = destination.server or destination.topic
        remotes = place.remotes
        if is_older or not place.queue.size_bytes:
            best, least = None, 0.0
            for remote in remotes.values():
                free = remote.room
                if free is not None and not (is_older or free or remote.wanted):
                    # Whether its consumers are still busy will show. Not by a request that came back: two neighbours
                    # that are busy would send it to and fro.
                    free = remote.room = None
                # As `Remote.free` is, written out for the path of each call.
                link, offered = remote.link, len(remote.offered)
                if free is None:
                    free = remote.capacity - offered
                if free > 0 and link.is_responsive and not (link.is_full or remote.is_held):
                    load = offered / (remote.capacity or 1)
                    if best is None or load < least:
                        best, least = remote, load
            if best is not None and self._offer(now, request, best):
                return True
        for remote in remotes.values():
            want_more(place, remote, 1)
        return False

    def take_beside(self, now: float, request: Request) -> bool:
        """Offer ``request``, which others have, to the least busy neighbour without it; one that was busy is last."""
        remotes = list(_place_of(request).remotes.values())
        for remote in (were_busy := [each for each in remotes if each.room == 0 and not each.wanted]):
            remote.room = None  # as in `take`
        # Not one that tells how many it takes: its consumers are busy.
        free = [each for each in remotes if each.room is None and each.free > 0]
        free.sort(key=lambda each: (each in were_busy, len(each.offered) / (each.capacity or 1)))
        return any(self._offer(now, request, remote) for remote in free)

    def fan_out(self, request: Request) -> int:
        """Send the fanout ``request`` to each neighbour with consumers; return how many these are together.

        Copies wait, and end, at the routers of their consumers.
        """
        reached = 0
        message = without_flag(without_flag(request.message, Flag.CONFIRM), Flag.MANDATORY)
        for remote in request.destination.remotes.values():
            remote.link.send(message)
            reached += remote.consumers
        return reached

    def _offer(self, now: float, request: Request, remote: Remote[Delivery]) -> bool:
        """Give ``request`` to ``remote``; return whether that could be."""
        link, key, topic = remote.link, request.key, request.destination.topic
        if (work := self._work.get(link)) is None:
            return False
        consumer = work.whole if request.is_call else work.holder(request)
        if key in consumer.in_flight:
            return False  # an earlier attempt of it is there still
        if request.received_at == now and not request.attempts:
            self._deliveries.give(now, request, consumer, request.message)
        else:
            self._deliveries.deliver(now, request, consumer)
        if topic.group:
            outbox = link.outbox
            message = with_address(outbox[-1], topic.address._replace(server=topic.group).encode())
            outbox[-1] = for_consumer(message, Tag.GROUP)
        remote.offered[key] = consumer.in_flight[key]
        if remote.room is not None:
            remote.room -= 1
        return True

    def _feed(self, now: float, place: Place, remote: Remote[Delivery]) -> None:
        """Offer what waits at ``place`` to ``remote``, oldest first, as long as it takes more."""
        queue = place.queue
        while queue and remote.free > 0:
            request = queue.popleft()
            if request.reply_to is None:
                self._requests.deadlines.disarm(request)
            elif request.reply_to.state is LinkState.ENDED:
                self._requests.cancel(now, request)
                continue
            if self._deliveries.gate is not None and self._deliveries.stops(now, request):
                continue
            if not self._offer(now, request, remote):
                if not request.is_call:
                    self._requests.deadlines.arm_cast(now, request)
                queue.requeue(request)
                return
        want_more(place, remote)

    def _acknowledge(self, now: float, link: Link, busy: bytes) -> None:
        """Show the neighbour that its BUSY was read: it takes nothing for that address before."""
        place = self._context.places.named_by(busy)
        count = 0
        if place is not None and (remote := place.remotes.get(link)) is not None:
            count = remote.wanted = len(place.queue)
        want = pack(Kind.WANT, count.to_bytes(4), key=busy[KEY], address=address_of(busy), consumer=busy[CONSUMER_AT])
        link.send(want)

    # --- what becomes of them ----------------------------------------------------------------

    def _consumer(self, link: Link, message: bytes) -> Elsewhere | None:
        """The pseudo-consumer that has what ``message`` is about."""
        work, group = self._work.get(link), self._context.places.group_of(message)
        if work is None:
            return None
        return work.whole if group is None else work.of(group)

    def _holder(self, link: Link, message: bytes) -> Consumer | None:
        """The pseudo-consumer that has the request ``message`` is about: it may be a call that has gone to a group."""
        work = self._work.get(link)
        return None if work is None else work.having(message[KEY], self._context.places.group_of(message))

    def _take_from(self, link: Link, message: bytes, is_counted: bool = True) -> Delivery | None:
        """Take the delivery that ``message`` is about from the neighbour; None if it is none of the present ones.

        Args:
            is_counted: whether such a message is a mistake.
        """
        consumer = self._holder(link, message)
        delivery = consumer.in_flight.get(message[KEY]) if consumer is not None else None
        if consumer is None or delivery is None or delivery.attempt != message[ATTEMPT_AT]:
            if is_counted:
                self._requests.count_unknown(link, "return of an unknown request")
            return None
        del consumer.in_flight[message[KEY]]
        return delivery

    def _ended(self, now: float, link: Link, delivery: Delivery) -> None:
        """The neighbour is done with ``delivery``, and can take another request."""
        request = delivery.request
        place = _place_of(request)
        if (remote := place.remotes.get(link)) is not None:
            if remote.offered.get(request.key) is delivery:  # else it was offered there again since
                del remote.offered[request.key]
            if place.queue.size_bytes or remote.room is not None:
                self._feed(now, place, remote)

    def _reply(self, now: float, link: Link, message: bytes) -> None:
        """REPLY, FAULT or END: a call has ended."""
        if message[TRACE_LENGTH_AT] and (work := self._work.get(link)) is not None:
            message, home_us, number = split_report(message)
            work.whole.report = message[KEY], self._context.runner(link, number), home_us
        if (delivery := self._take_reply(now, link, message)) is not None:
            self._ended(now, link, delivery)

    def _settle(self, now: float, link: Link, message: bytes) -> None:
        """SETTLE: casts have ended."""
        payload = payload_of(message)
        record = REPORTED_SETTLEMENT if message[FORMAT_AT] else SETTLEMENT
        count, rest = divmod(len(payload), record.size)
        if rest or count > MAX_SETTLEMENTS:
            raise ProtocolError(f"SETTLE of {len(payload)} bytes is no multiple of {record.size}", "length")
        self._requests.turns.spent += count
        consumer = self._consumer(link, message)
        for key, attempt, outcome, handler_us, *report in record.iter_unpack(payload):
            delivery = consumer.in_flight.get(key) if consumer is not None else None
            if consumer is None or delivery is None or delivery.attempt != attempt or delivery.request.is_call:
                self._requests.count_unknown(link, "settlement of an unknown cast")
                continue
            del consumer.in_flight[key]
            if report:
                consumer.report = key, self._context.runner(link, report[1]), report[0]
            self._requests.record(now, delivery.request, outcome, handler_us)
            delivery.request.settled_by(delivery)
            self._ended(now, link, delivery)

    def _error(self, now: float, link: Link, message: bytes) -> None:
        """ERROR: the neighbour has ended a request, or refuses it."""
        body = ErrorBody.of(message)
        outcome = Outcome(body.outcome) if body.outcome in _OUTCOMES else Outcome.PROTOCOL
        consumer = self._holder(link, message)
        delivery = consumer.in_flight.pop(message[KEY], None) if consumer is not None else None
        if delivery is None:
            self._requests.count_unknown(link, "error about an unknown request")
            return
        request = delivery.request
        if not request.has_ended:
            if outcome is Outcome.DENIED:
                self._context.places.refuse(now, _place_of(request), link)
                self._note_denied(link, body.text)
                self._offer_again(now, [delivery])
            elif outcome is Outcome.DRAINING or self._dispatch.hedged_ends.outlives(request, delivery, outcome):
                self._offer_again(now, [delivery])
            elif request.reply_to is None:
                self._requests.drop(now, request, request.destination.queue, "refused by another router")
                self._requests.record(now, request, outcome)
            elif self._requests.finish(now, request, outcome):
                self._requests.tell(request.reply_to, request.key, outcome, body.text, dict(body.details))
        else:
            self._dispatch.hedged_ends.lost(now, delivery, Outcome.CANCELLED)
        self._ended(now, link, delivery)

    def _note_denied(self, link: Link, text: str) -> None:
        link.counters["denied by it"] += 1
        self._context.node.act(LogEvent("mesh problem", f"router {link.identity}: {shorten(text)}", link.identity))

    def _busy(self, now: float, link: Link, message: bytes) -> None:
        """BUSY: a request comes back, and so do all that this router has offered there after it, for that address."""
        if (work := self._work.get(link)) is not None:
            work.hold(self._context.places.named_by(message), message[KEY])
        if (delivery := self._take_from(link, message, is_counted=False)) is None:
            # Taken back before, or it has just ended.
            self._acknowledge(now, link, message)
            return
        place = _place_of(delivery.request)
        remote = place.remotes.get(link)
        back = [delivery]
        if remote is not None:
            back = list(dropwhile(lambda each: each is not delivery, remote.offered.values())) or back
            for each in back:
                remote.offered.pop(each.request.key, None)
                each.consumer.in_flight.pop(each.request.key, None)
            remote.room = remote.wanted = 0
        self._offer_again(now, back)
        self._acknowledge(now, link, message)

    def _room(self, now: float, link: Link, message: bytes) -> None:
        """ROOM: so many more may be offered; with a key, the answer to the WANT with that."""
        payload = payload_of(message)
        if len(payload) != 4:
            raise ProtocolError("ROOM needs a count of 4 bytes", "length")
        place = self._context.places.named_by(message)
        if place is None or (work := self._work.get(link)) is None:
            return
        work.let_go(place, message[KEY])
        if (remote := place.remotes.get(link)) is None:
            return
        count = min(int.from_bytes(payload), remote.wanted)  # else it could have all that waits offered without end
        remote.wanted -= count
        if count:
            remote.room = (remote.room or 0) + count
        if remote.room != 0:
            self._feed(now, place, remote)

    def _returned(self, now: float, link: Link, message: bytes) -> None:
        """RETURNED: a consumer there is gone, or the request could not be given to one."""
        payload = bytes(payload_of(message))
        name = ConsumerName.decode(payload[1:]) if payload[1:] else ConsumerName(link.origin, link.identity)
        if (delivery := self._take_from(link, message)) is None:
            return
        if not delivery.request.has_ended:
            if payload[:1] == b"\0":
                self._offer_again(now, [delivery])
            elif payload[:1] != b"\2" or not self._context.look_for(now, delivery, name):
                self._dispatch.departures.lost_elsewhere(now, delivery, name.identity)
        elif payload[:1] != b"\0":
            self._dispatch.hedged_ends.lost(now, delivery)
        self._ended(now, link, delivery)

    def _offer_again(self, now: float, back: list[Delivery]) -> None:
        """Requests that came back and were not started: to others, or to the head of the queue."""
        self._requests.turns.spent += 20 * len(back)
        again = [each for each in back if not each.request.has_ended]
        for each in again:
            each.request.take_back(each)
            self._dispatch.hedging.come_back(now, each)
        # Not where a consumer has it still, which was given it before, or beside this one.
        nobodys = [each.request for each in again if each.request.delivery is None]
        self._dispatch.deliveries.deliver_again(now, nobodys)


def _place_of(request: Request) -> Place:
    destination = request.destination
    return destination.server or destination.topic
