"""The streams of requests: what callers send to the consumers that have their requests, as these ask for it.

Nothing is sent before the consumer has granted it, so nothing waits here for a consumer; and from the first grant on
the request is given to no other one, for what was sent cannot be sent again.
"""

from __future__ import annotations

from rpcmq.core.router.base_link import outgoing_bytes
from rpcmq.core.router.model import Delivery, Handler, Link
from rpcmq.core.router.request_credit import RequestCredit
from rpcmq.core.router.roundrobin.request_table import RequestTable
from rpcmq.core.router.roundrobin.stream_relay import Streams
from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.payload.format import has_stream
from rpcmq.wire import (
    ATTEMPT_AT,
    CONSUMER_AT,
    FORMAT_AT,
    KEY,
    LOW_FLAGS_AT,
    Flag,
    Kind,
    has_names,
    payload_of,
    size_of,
)
from rpcmq.wire.stream_grant import grant_of

__all__ = ["RequestStreams", "has_begun"]


class RequestStreams:
    """Passes on the items of requests, and the credit for them.

    Args:
        streams: starts the deadlines of calls anew.
    """

    __slots__ = ("_requests", "_settings", "_streams")

    def __init__(self, settings: Settings, requests: RequestTable, streams: Streams) -> None:
        self._settings = settings
        self._requests = requests
        self._streams = streams

    @property
    def from_callers(self) -> dict[int, Handler]:
        """The handlers of what callers say."""
        return {Kind.REQUEST_ITEM: self.item, Kind.REQUEST_END: self.end}

    @property
    def from_consumers(self) -> dict[int, Handler]:
        """The handlers of what consumers say."""
        return {Kind.REQUEST_GRANT: self.grant, Kind.REQUEST_STOP: self.stop}

    # --- from consumers ----------------------------------------------------------------------

    def grant(self, now: float, link: Link, message: bytes) -> None:
        """REQUEST_GRANT: the consumer takes more.

        Raises:
            ProtocolError: it is malformed.
        """
        items, size_bytes = grant_of(message)
        delivery = self._delivery(now, link, message)
        if delivery is None:
            return
        if not has_begun(delivery):
            delivery.stream = RequestCredit()
        excess = delivery.stream.add(items, size_bytes)
        if excess:
            self._requests.break_off(now, delivery.request, Outcome.PROTOCOL, f"{link.identity}: {excess}")
            return
        caller = delivery.request.reply_to
        if caller is not None and (no_room := self._streams.no_room_for_grant(caller, link.origin)):
            self._requests.break_off(now, delivery.request, Outcome.LINK_LOST, no_room)
            return
        self._tell_caller(now, delivery, message)

    def stop(self, now: float, link: Link, message: bytes) -> None:
        """REQUEST_STOP: the consumer takes no more, and goes on with its request."""
        delivery = self._delivery(now, link, message)
        if delivery is None:
            return
        if not has_begun(delivery):
            delivery.stream = RequestCredit()
        if delivery.stream.is_stopped:
            return  # The caller knows.
        delivery.stream.is_stopped = True
        self._tell_caller(now, delivery, message)

    def _delivery(self, now: float, link: Link, message: bytes) -> Delivery | None:
        """The delivery that ``message`` of a consumer is about; None if nobody waits for more of it."""
        consumer = link.consumers.get(message[CONSUMER_AT])
        delivery = consumer.in_flight.get(message[KEY]) if consumer is not None else None
        if delivery is None or delivery.attempt != message[ATTEMPT_AT] or has_names(message):
            self._requests.count_unknown(link, "grant of an unknown call")
            return None
        delivery.consumer.progressed_at = now
        request = delivery.request
        if request.reply_to is None or request.slot is None:
            return None  # it has ended
        if not has_stream(request.message[FORMAT_AT]):
            text = f"{link.identity} asked for items of a request that has no stream"
            self._requests.break_off(now, request, Outcome.PROTOCOL, text)
            return None
        return delivery

    def _tell_caller(self, now: float, delivery: Delivery, message: bytes) -> None:
        caller = delivery.request.reply_to
        if caller is not None:
            caller.send(message)
            self._streams.restart(now, delivery.request)

    # --- from callers ------------------------------------------------------------------------

    def item(self, now: float, link: Link, message: bytes) -> None:
        """REQUEST_ITEM: to the consumer, for which it is granted."""
        delivery = self._delivery_of_call(link, message)
        if delivery is None or (has_begun(delivery) and delivery.stream.is_stopped):
            return
        request, to = delivery.request, delivery.consumer.link
        if not (has_begun(delivery) and delivery.stream.use(len(payload_of(message)))):
            text = f"{link.identity} sent more items of its stream than were granted"
            self._requests.break_off(now, request, Outcome.PROTOCOL, text)
            return
        most = self._settings.outbox_max_bytes
        waiting = outgoing_bytes(to) if message[LOW_FLAGS_AT] & Flag.DETACHED else 0
        if waiting + size_of(message) > most:
            text = f"item dropped: {waiting} bytes already wait for {to.identity} (link.outbox_max_bytes = {most})"
            self._requests.break_off(now, request, Outcome.LINK_LOST, text)
            return
        to.send(message)
        self._streams.restart(now, request)

    def end(self, now: float, link: Link, message: bytes) -> None:
        """REQUEST_END: the caller has nothing more."""
        delivery = self._delivery_of_call(link, message)
        if delivery is None:
            return
        if not has_begun(delivery) or delivery.stream.is_over:
            text = f"{link.identity} ended a stream that was not asked for, or has ended"
            self._requests.break_off(now, delivery.request, Outcome.PROTOCOL, text)
            return
        delivery.stream.is_over = True
        delivery.consumer.link.send(message)
        self._streams.restart(now, delivery.request)

    def _delivery_of_call(self, link: Link, message: bytes) -> Delivery | None:
        """The delivery of the call that ``message`` is of; None if it has ended, or nobody has it."""
        request = link.calls.get(message[KEY])
        delivery = request.delivery if request is not None else None
        if delivery is None or has_names(message):
            self._requests.count_unknown(link, "item of an unknown request")
            return None
        return delivery


def has_begun(delivery: Delivery) -> bool:
    """Return whether the consumer has asked for the stream of the request: nobody else can be given that."""
    try:
        return delivery.stream is not None
    except AttributeError:
        return False
