"""Items of streams, signs of life and progress on their way to callers.

A caller grants items, and a consumer that sends more breaks the protocol.
"""

from __future__ import annotations

from rpcmq.core.router.base_link import outgoing_bytes
from rpcmq.core.router.model import Delivery, Link, Request
from rpcmq.core.router.roundrobin.answer_bounds import is_work
from rpcmq.core.router.roundrobin.request_table import RequestTable
from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome, ProtocolError
from rpcmq.wire import (
    ATTEMPT_AT,
    CONSUMER_AT,
    KEY,
    KIND_AT,
    LOW_FLAGS_AT,
    Flag,
    Kind,
    has_names,
    payload_of,
    size_of,
)

__all__ = ["INITIAL_ITEM_CREDIT", "MAX_ITEM_CREDIT", "Streams"]

#: Item credit of a stream before the first grant.
INITIAL_ITEM_CREDIT = 16
#: Most items granted and not yet sent.
MAX_ITEM_CREDIT = 1024
#: Messages and bytes queued for a caller above which keep-alives are dropped.
_MAX_BEFORE_ALIVE = 1000
_MAX_BYTES_BEFORE_ALIVE = 8 << 20


class Streams:
    """Passes on what comes of a call before its answer."""

    __slots__ = ("_requests", "_settings")

    def __init__(self, settings: Settings, requests: RequestTable) -> None:
        self._settings = settings
        self._requests = requests

    def grant(self, now: float, link: Link, message: bytes) -> None:
        """Grant items of a stream, and restart its timeout: the caller was busy with those it had.

        Raises:
            ProtocolError: there is no count.
        """
        payload = payload_of(message)
        if has_names(message) or len(payload) != 4:
            raise ProtocolError("GRANT needs a count of 4 bytes and nothing else", "length")
        request = link.calls.get(message[KEY])
        if request is None or request.delivery is None:
            return
        self.restart(now, request)
        items = int.from_bytes(payload)
        if not items:
            return  # a grant of 0 only restarts the timeout
        delivery = request.delivery
        left = _item_credit(delivery) + items
        if left > MAX_ITEM_CREDIT:
            text = f"{left} items of the stream granted and not sent exceed the limit of {MAX_ITEM_CREDIT}"
            self._requests.break_off(now, request, Outcome.PROTOCOL, text)
            return
        delivery.item_credit = left
        delivery.consumer.link.send(message)

    def item(self, now: float, link: Link, message: bytes) -> None:
        """Handle an ITEM of a stream, or ALIVE (a keep-alive, perhaps with progress)."""
        consumer = link.consumers.get(message[CONSUMER_AT])
        delivery = consumer.in_flight.get(message[KEY]) if consumer is not None else None
        if delivery is None or delivery.attempt != message[ATTEMPT_AT] or has_names(message):
            self._requests.count_unknown(link, "item of an unknown call")
            return
        delivery.consumer.progressed_at = now
        request = delivery.request
        caller = request.reply_to
        if caller is None or request.slot is None:
            return
        if message[KIND_AT] == Kind.ITEM:
            self._forward_item(now, link, caller, delivery, message)
        elif _forwards_keepalive(caller, message):
            if type(message) is bytes or not is_work(request):  # queue servers want no more than to hear of it
                caller.send(message)
        else:
            self._requests.counters["keep-alives dropped: outbox full"] += 1

    def _forward_item(self, now: float, link: Link, caller: Link, delivery: Delivery, message: bytes) -> None:
        request, left = delivery.request, _item_credit(delivery)
        if delivery.earlier is not None or request.delivery is not delivery:
            # Those of two consumers would be mixed.
            text = f"{link.identity} answers item by item, and others have the same call: such a one cannot be hedged"
            self._requests.break_off(now, request, Outcome.PROTOCOL, text)
            return
        most = self._settings.outbox_max_bytes
        waiting = outgoing_bytes(caller) if message[LOW_FLAGS_AT] & Flag.DETACHED else 0
        if not left:
            text = f"{link.identity} sent more items than were granted"
            self._requests.break_off(now, request, Outcome.PROTOCOL, text)
        elif waiting + size_of(message) > most:
            text = f"item dropped: {waiting} bytes already wait for this caller (link.outbox_max_bytes = {most})"
            self._requests.break_off(now, request, Outcome.LINK_LOST, text)
        else:
            delivery.item_credit = left - 1
            caller.send(message)
            self.restart(now, request)

    def restart(self, now: float, request: Request) -> None:
        """Each item, and each that is asked for, starts the deadline of a stream anew."""
        if request.message[LOW_FLAGS_AT] & Flag.STREAM:
            deadlines = self._requests.deadlines
            deadlines.disarm(request)
            deadlines.arm_call(now, request)


def _item_credit(delivery: Delivery) -> int:
    """Return how many items the consumer may still send."""
    try:
        return delivery.item_credit
    except AttributeError:
        return INITIAL_ITEM_CREDIT


def _forwards_keepalive(caller: Link, message: bytes) -> bool:
    """Whether to forward a keep-alive: dropping one loses nothing, queueing many costs memory."""
    if caller.is_full or len(caller.outbox) > _MAX_BEFORE_ALIVE:
        return False
    return not message[LOW_FLAGS_AT] & Flag.DETACHED or outgoing_bytes(caller) < _MAX_BYTES_BEFORE_ALIVE
