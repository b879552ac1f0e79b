"""Consumers give back what they were given: messages that others may have, and credit apart from the settlement."""

from __future__ import annotations

from rpcmq.core.router.forwarded import Forwarded
from rpcmq.core.router.model import Consumer, Delivery, Handler, Link, Request
from rpcmq.core.router.roundrobin.deliveries import Deliveries
from rpcmq.core.router.roundrobin.departures import Departures
from rpcmq.core.router.roundrobin.hedging import Hedging
from rpcmq.core.router.roundrobin.request_streams import has_begun
from rpcmq.core.router.roundrobin.request_table import RequestTable
from rpcmq.errors import Outcome, ProtocolError
from rpcmq.wire import ATTEMPT_AT, CONSUMER_AT, KEY, Flag, Kind, payload_of

__all__ = ["Returns"]


class Returns:
    """Takes messages and credit back from consumers."""

    __slots__ = ("_deliveries", "_departures", "_hedging", "_requests", "kinds")

    def __init__(
        self, requests: RequestTable, deliveries: Deliveries, departures: Departures, hedging: Hedging
    ) -> None:
        self._requests = requests
        self._deliveries = deliveries
        self._departures = departures
        self._hedging = hedging
        self.kinds: dict[Kind, Handler] = {Kind.OCCUPIED: self.occupied, Kind.GIVE_BACK: self.give_back}

    def occupied(self, now: float, link: Link, message: bytes) -> None:
        """OCCUPIED: so many casts that a consumer has settled still run, and take of its credit.

        Raises:
            ProtocolError: there is no count.
        """
        payload = payload_of(message)
        if len(payload) != 4:
            raise ProtocolError("OCCUPIED needs a count of 4 bytes", "length")
        consumer = link.consumers.get(message[CONSUMER_AT])
        if consumer is None:
            self._requests.count_unknown(link, "credit of an unknown consumer")
            return
        consumer.occupy(int.from_bytes(payload))
        consumer.topic.ready.move(consumer)
        self._deliveries.deliver_waiting(now, consumer)

    def give_back(self, now: float, link: Link, message: bytes) -> None:
        """GIVE_BACK: a consumer does not want a message that it has; another one gets it, or it waits again.

        It is as old as it was. No attempt is counted, for none was lost.
        """
        consumer = link.consumers.get(message[CONSUMER_AT])
        delivery = consumer.in_flight.get(message[KEY]) if consumer is not None else None
        if consumer is None or delivery is None or delivery.attempt != message[ATTEMPT_AT]:
            self._requests.count_unknown(link, "return of an unknown request")
            return
        del consumer.in_flight[message[KEY]]
        consumer.progressed_at = now
        # First: others of the same load have their turn before the one that did not want it.
        self._again(now, consumer, delivery)
        self._departures.relieved(now, consumer)
        self._deliveries.deliver_waiting(now, consumer)

    def _again(self, now: float, consumer: Consumer, delivery: Delivery) -> None:
        request, requests = delivery.request, self._requests
        requests.counters["given back"] += 1
        if type(request) is Forwarded:
            # Its owner takes it as one that was not started, but for one whose stream was.
            self._departures.on_forwarded_lost(now, delivery, not has_begun(delivery), "given back")
            return
        if request.has_ended:
            request.settled_by(delivery)
            return
        if has_begun(delivery):
            self._departures.end(now, delivery, "given back")
            return
        requests.journal.note(now, request.key, "given back", consumer.link.identity)
        is_latest = request.delivery is delivery and delivery.earlier is None
        request.take_back(delivery)
        if not is_latest:
            self._hedging.come_back(now, delivery)  # others have it
            return
        # A call may have the flag, too, where it means nothing.
        if request.flags & Flag.FANOUT and request.reply_to is None:
            self._copy_again(now, consumer, request)
        else:
            self._deliveries.deliver_again(now, [request], unwilling=consumer)

    def _copy_again(self, now: float, consumer: Consumer, copy: Request) -> None:
        """A copy of a fanout is for nobody else."""
        requests = self._requests
        if consumer.stopping:
            requests.drop(now, copy, copy.destination.queue, "consumer left")
            requests.record(now, copy, Outcome.NO_CONSUMER)
            return
        requests.deadlines.arm_cast(now, copy)
        consumer.backlog.put_back(copy)
