"""Items of streams, signs of life and progress on their way to callers.

A caller grants items, and bytes of their payloads to a consumer that counts these; one that sends more breaks the
protocol.
"""

from __future__ import annotations

from rpcmq.core.common.stream_credit import StreamCredit, unasked_credit
from rpcmq.core.router.base_link import outgoing_bytes
from rpcmq.core.router.grant_shares import GrantShares
from rpcmq.core.router.model import Delivery, Link, Request
from rpcmq.core.router.roundrobin.answer_bounds import is_work
from rpcmq.core.router.roundrobin.request_table import RequestTable
from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.wire import (
    ATTEMPT_AT,
    CONSUMER_AT,
    KEY,
    KIND_AT,
    LOW_FLAGS_AT,
    ORIGIN,
    Flag,
    Kind,
    flags_of,
    has_names,
    pack,
    payload_of,
    size_of,
)
from rpcmq.wire.stream_grant import reply_grant_of

__all__ = ["Streams"]

#: Messages and bytes queued for a caller above which keep-alives are dropped.
_MAX_BEFORE_ALIVE = 1000
_MAX_BYTES_BEFORE_ALIVE = 8 << 20
#: Grants are not counted before this part of the messages that may wait for a link do.
_UNCOUNTED_PART = 8


class Streams:
    """Passes on what comes of a call before its answer."""

    __slots__ = ("_requests", "_settings")

    def __init__(self, settings: Settings, requests: RequestTable) -> None:
        self._settings = settings
        self._requests = requests

    def grant(self, now: float, link: Link, message: bytes) -> None:
        """Grant items of a stream, and restart its timeout: the caller was busy with those it had.

        Raises:
            ProtocolError: it is malformed.
        """
        items, size_bytes = reply_grant_of(message)
        key = message[KEY]
        request = link.calls.get(key)
        if request is None or request.delivery is None:
            return
        self.restart(now, request)
        if not items and not size_bytes:
            return  # a grant of 0 only restarts the timeout
        delivery = request.delivery
        credit = _credit_of(delivery)
        if excess := credit.add(items, size_bytes):
            self._requests.break_off(now, request, Outcome.PROTOCOL, f"stream: {excess}")
        elif no_room := self.no_room_for_grant(delivery.consumer.link, message[ORIGIN]):
            self._requests.break_off(now, request, Outcome.LINK_LOST, no_room)
        elif credit.counts_bytes or len(payload_of(message)) == 4:
            delivery.consumer.link.send(message)
        elif items:  # another consumer had it, which counted bytes: the first count alone is for all
            delivery.consumer.link.send(pack(Kind.GRANT, items.to_bytes(4), key=key))

    def no_room_for_grant(self, to: Link, granter: bytes) -> str:
        """Return why ``to`` is given no more grants of ``granter`` (an origin); empty: it is, and this one is counted.

        Those of many streams must not end its link, and those of one process not the streams of others.
        """
        most = self._settings.outbox_max_messages
        waiting = len(to.outbox) + to.unacknowledged
        if waiting <= most // _UNCOUNTED_PART:
            to.grant_shares = None
            return ""
        if to.grant_shares is None:
            to.grant_shares = GrantShares()
        sent = to.sent_messages
        room = most // 2 - waiting
        count = to.grant_shares.take(granter, sent + len(to.outbox), sent - to.unacknowledged, room)
        if not count and room > 0:
            return ""
        self._requests.counters["grants dropped: share used up"] += 1
        text = f"grant dropped: {waiting} messages already wait for {to.identity} (link.outbox_max_messages = {most})"
        return f"{text}, {count} of them grants of this process: it has its share"

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
        request, credit = delivery.request, _credit_of(delivery)
        if delivery.earlier is not None or request.delivery is not delivery:
            # Those of two consumers would be mixed.
            text = f"{link.identity} answers item by item, and others have the same call: such a one cannot be hedged"
            self._requests.break_off(now, request, Outcome.PROTOCOL, text)
            return
        most = self._settings.outbox_max_bytes
        waiting = outgoing_bytes(caller) if message[LOW_FLAGS_AT] & Flag.DETACHED else 0
        if flags_of(message) & Flag.BYTE_CREDIT:
            credit.counts_bytes = True
        if not credit.may_send:
            text = f"{link.identity} sent more items than were granted"
            self._requests.break_off(now, request, Outcome.PROTOCOL, text)
        elif waiting + size_of(message) > most:
            text = f"item dropped: {waiting} bytes already wait for this caller (link.outbox_max_bytes = {most})"
            self._requests.break_off(now, request, Outcome.LINK_LOST, text)
        else:
            credit.grants = 0
            credit.items -= 1
            if credit.counts_bytes:
                credit.size_bytes -= len(payload_of(message))
            caller.send(message)
            self.restart(now, request)

    def restart(self, now: float, request: Request) -> None:
        """Each item, and each that is asked for, starts the deadline of a stream anew."""
        if request.message[LOW_FLAGS_AT] & Flag.STREAM:
            deadlines = self._requests.deadlines
            deadlines.disarm(request)
            deadlines.arm_call(now, request)


def _credit_of(delivery: Delivery) -> StreamCredit:
    """The credit of the items that the consumer may still send."""
    try:
        return delivery.item_credit
    except AttributeError:
        delivery.item_credit = credit = unasked_credit(counts_bytes=False)  # until it says that it counts them
        return credit


def _forwards_keepalive(caller: Link, message: bytes) -> bool:
    """Return whether to forward a keep-alive: dropping one loses nothing, queueing many costs memory."""
    if caller.is_full or len(caller.outbox) > _MAX_BEFORE_ALIVE:
        return False
    return not message[LOW_FLAGS_AT] & Flag.DETACHED or outgoing_bytes(caller) < _MAX_BYTES_BEFORE_ALIVE
