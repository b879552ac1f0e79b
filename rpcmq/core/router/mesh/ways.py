"""The way to other routers over a neighbour: what several links send on it shares batches.

Batches for several routers that have the same way share a RELAY, in which each message is contained once; the link to
the neighbour takes part. So an event crosses each connection once, however many routers it is for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rpcmq.core.router.actions import DIALED
from rpcmq.core.router.mesh.unread_relays import UnreadRelays, bytes_of
from rpcmq.core.router.model import Link
from rpcmq.wire import Detached, size_of
from rpcmq.wire.relay import Leg, Ranges, pack_relay, ranges_of

__all__ = ["Put", "RelayedConnection", "Sender", "Way"]

#: Sends messages as one batch on a connection: (route, messages); returns False if it takes nothing now.
Put = Callable[[bytes, Sequence[bytes]], bool]
#: Links whose batches share a RELAY at most: together they have at most 4095 messages, and with it those of a batch.
_MERGED_AT_ONCE = 15
#: Bytes of a RELAY with detached payloads beyond which its links have one each: nothing else is heard meanwhile.
_MERGED_BYTES = 2 << 20


@dataclass(slots=True, eq=False)
class RelayedConnection:
    """One end of a connection that others carry.

    Attributes:
        route: the name of the connection in this router.
        peer: the id of the router at the other end.
        number: names it, at both ends.
        sent: batches that were sent.
        received: batches that have come.
        came_over: the link to the neighbour that has brought the last one.
    """

    route: bytes
    peer: int
    number: int
    sent: int = 0
    received: int = 0
    came_over: Link | None = None

    @property
    def was_dialed(self) -> bool:
        """Whether this router has made it."""
        return self.route.startswith(DIALED)


class Sender(NamedTuple):
    """A link that has something to send on the way to a neighbour; that to the neighbour itself has no connection."""

    link: Link
    connection: RelayedConnection | None


class Way:
    """The way over a neighbour, at one time.

    Args:
        own_id: the id of this router.
        hop: the link to the neighbour.
        route: its connection.
        put: sends on it.
        unread: counts what the neighbour has yet to read, and has room or not.
    """

    def __init__(self, own_id: int, hop: Link, route: bytes, put: Put, unread: UnreadRelays) -> None:
        self._own_id, self._hop, self._route, self._put = own_id, hop, route, put
        self._unread = unread

    def send(self, senders: list[Sender]) -> bool:
        """Send what the links of ``senders`` have; return whether the neighbour takes more."""
        return (
            self._send_each(senders, lambda link: link.first_messages)
            and self._send_outboxes(senders)
            and self._send_each(senders, lambda link: link.last_messages)
        )

    def _send_each(self, senders: list[Sender], messages_of: Callable[[Link], list[bytes]]) -> bool:
        """Send messages about links, each alone."""
        for sender in senders:
            messages = messages_of(sender.link)
            while messages:
                if not self._send_relay([sender], [()], messages[:1]):
                    return False
                del messages[0]
        return True

    def _send_outboxes(self, senders: list[Sender]) -> bool:
        ready = [sender for sender in senders if sender.link.may_send]
        if self._shares(ready):
            ready.append(Sender(self._hop, None))
        for start in range(0, len(ready), _MERGED_AT_ONCE):
            some = ready[start : start + _MERGED_AT_ONCE]
            while some := [sender for sender in some if sender.link.may_send]:
                if not self._send_batches(some):
                    return False
        return True

    def _shares(self, ready: list[Sender]) -> bool:
        """Return whether the neighbour gets a message of ``ready`` itself, too; nothing may go to it before."""
        hop = self._hop
        if not (ready and hop.may_send and not hop.first_messages):
            return False
        own = set(map(_identity, hop.outbox))
        return any(_identity(message) in own for sender in ready for message in sender.link.outbox)

    def _send_batches(self, senders: list[Sender]) -> bool:
        """Send a batch of each of ``senders``, in one RELAY if they share any message."""
        batches = [sender.link.batch() for sender in senders]
        if len(senders) > 1:
            places: dict[Any, int] = {}
            messages: list[bytes] = []
            ranges = [_enter(batch, places, messages) for batch in batches]
            if any(sender.link.has_detached for sender in senders) and sum(map(size_of, messages)) > _MERGED_BYTES:
                half = len(senders) // 2
                return self._send_batches(senders[:half]) and self._send_batches(senders[half:])
            if len(messages) < sum(map(len, batches)):
                return self._send_relay(senders, [ranges_of(each, len(messages)) for each in ranges], messages, True)
        for sender, batch in zip(senders, batches, strict=True):
            if sender.connection is None:
                if not self._put(self._route, batch):
                    return False
                sender.link.batch_was_sent()
            elif not self._send_relay([sender], [()], batch, True):
                return False
        return True

    def _send_relay(
        self, senders: list[Sender], ranges: list[Ranges], messages: Sequence[bytes], is_batch: bool = False
    ) -> bool:
        """Send ``messages``, of which each of ``senders`` has some; return whether the neighbour has taken them."""
        legs = [self._leg(sender, some) for sender, some in zip(senders, ranges, strict=True)]
        batch = [pack_relay(self._own_id, 0, legs), *messages]
        if not (self._unread.has_room(self._hop) and self._put(self._route, batch)):
            return False
        self._unread.sent(self._hop, bytes_of(batch))
        for sender in senders:
            if sender.connection is not None:
                sender.connection.sent += 1
            if is_batch:
                sender.link.batch_was_sent()
        return True

    def _leg(self, sender: Sender, ranges: Ranges) -> Leg:
        connection = sender.connection
        if connection is None:
            return Leg(0, 0, 1, ranges)
        return Leg(connection.peer, connection.number, connection.sent + 1, ranges)


def _enter(batch: list[bytes], places: dict[Any, int], messages: list[bytes]) -> list[int]:
    """Enter those of ``batch`` that are new into ``messages``; return the places of all."""
    entered = []
    for message in batch:
        place = places.setdefault(_identity(message), len(messages))
        if place == len(messages):
            messages.append(message)
        entered.append(place)
    return entered


def _identity(message: bytes) -> Any:
    """Tells ``message`` from all others: a detached payload is no part of it, and is compared by being the same."""
    return (message, id(message.payload)) if isinstance(message, Detached) else message
