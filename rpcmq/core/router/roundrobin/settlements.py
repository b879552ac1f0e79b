"""Consumers settle casts, and say which they have received."""

from __future__ import annotations

from collections.abc import Callable

from rpcmq.core.router.forwarded import Forwarded
from rpcmq.core.router.model import Link
from rpcmq.core.router.roundrobin.deliveries import Deliveries
from rpcmq.core.router.roundrobin.departures import Departures
from rpcmq.core.router.roundrobin.request_table import RequestTable
from rpcmq.errors import ProtocolError
from rpcmq.wire import CONSUMER_AT, KEY, KIND_AT, LOW_FLAGS_AT, MAX_SETTLEMENTS, SETTLEMENT, Flag, Kind, payload_of

__all__ = ["Settlements"]

_CAST, _IDEMPOTENT = int(Kind.CAST), Flag.IDEMPOTENT


class Settlements:
    """Ends the casts that consumers are done with."""

    __slots__ = ("_deliveries", "_departures", "_requests", "on_answers_taken")

    def __init__(self, requests: RequestTable, deliveries: Deliveries, departures: Departures) -> None:
        self._requests = requests
        self._deliveries = deliveries
        self._departures = departures
        #: Called with (now, link, messages) where a process has received answers that others keep until then.
        self.on_answers_taken: Callable[[float, Link, list[bytes]], None] = lambda now, link, messages: None

    def taken(self, now: float, link: Link, messages: list[bytes]) -> None:
        """Handle the acknowledgement of the delivered ``messages``.

        It runs what it has, whatever becomes of this router, and the senders of casts need not keep those. Idempotent
        ones are kept until they have ended: they may go to another process if this one is lost.
        """
        if link.maker is not None:
            self.on_answers_taken(now, link, messages)
        in_flight = {tag: consumer.in_flight for tag, consumer in link.consumers.items() if consumer.in_flight}
        if not in_flight:
            return
        for message in messages:
            if message[KIND_AT] == _CAST and message[CONSUMER_AT] in in_flight:
                delivery = in_flight[message[CONSUMER_AT]].get(message[KEY])
                if delivery is not None and delivery.request.kept and not message[LOW_FLAGS_AT] & _IDEMPOTENT:
                    self._requests.receipts.note(now, delivery.request)

    def settle(self, now: float, link: Link, message: bytes) -> None:
        """Settle casts.

        Raises:
            ProtocolError: the payload is not a whole number of settlements.
        """
        requests, payload = self._requests, payload_of(message)
        count, rest = divmod(len(payload), SETTLEMENT.size)
        if rest:
            raise ProtocolError(f"SETTLE of {len(payload)} bytes is no multiple of {SETTLEMENT.size}", "length")
        if count > MAX_SETTLEMENTS:
            raise ProtocolError(f"SETTLE of {count} records; at most {MAX_SETTLEMENTS} are allowed", "length")
        # As many steps as microseconds, about.
        requests.turns.spent += count
        consumer = link.consumers.get(message[CONSUMER_AT])
        if consumer is None:
            requests.count_unknown(link, "settlement of an unknown consumer")
            return
        in_flight = consumer.in_flight
        for key, attempt, outcome, handler_us in SETTLEMENT.iter_unpack(payload):
            delivery = in_flight.get(key)
            if delivery is None or delivery.attempt != attempt or delivery.request.is_call:
                requests.count_unknown(link, "settlement of an unknown cast")
                continue
            del in_flight[key]
            request = delivery.request
            if type(request) is Forwarded:
                requests.on_forwarded_run(now, request, link)
            requests.record(now, request, outcome, handler_us)
            if request.delivery is delivery:
                request.delivery = delivery.earlier  # as `settled_by` does
            consumer.settled += 1
        consumer.progressed_at = now
        self._departures.relieved(now, consumer)
        self._deliveries.deliver_waiting(now, consumer)
