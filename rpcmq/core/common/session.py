"""One link as an engine sees it: what is to be sent, what was sent and not acknowledged, what came.

Both ends keep the same *session*: every message of a session kind is counted, the receiver
acknowledges by count now and then, and the sender keeps what is not acknowledged. After a reconnect
each side says how many it has received and the other sends the rest again, so a broken connection
loses nothing and doubles nothing as long as both processes live.

What was sent and not acknowledged is bounded: beyond ``WINDOW_BYTES`` the rest waits in the outbox. A
message that ends each connection that it is sent on (``GIVE_UP_AFTER``) is not sent again for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from itertools import chain
from typing import TypeGuard

from rpcmq.errors import ProtocolError
from rpcmq.wire import KEY, KIND_AT, Detached, Kind, message, size_of

__all__ = ["ACK_BYTES", "ACK_MESSAGES", "BATCH_BYTES", "BATCH_MESSAGES", "GIVE_UP_AFTER", "WINDOW_BYTES", "Session"]

#: A receiver acknowledges at the latest after so many messages or bytes.
ACK_MESSAGES = 128
ACK_BYTES = 256 * 1024
#: A batch has at most so many messages, and of detached payloads at most so many bytes or one.
BATCH_MESSAGES = 256
BATCH_BYTES = 1 << 20
#: Nothing more is sent while so many bytes are not acknowledged. A receiver acknowledges each ``ACK_BYTES``.
WINDOW_BYTES = 16 << 20
#: Resumptions after which no message more was acknowledged than after the one before.
GIVE_UP_AFTER = 5


class Session:
    """The counting, keeping and re-sending half of a link.

    ``outbox`` collects messages until the shell sends them, as a batch, at the end of a wake-up.
    Messages about the link itself are neither counted nor kept: ``greetings`` go out before the
    outbox, ``closings`` after it, so that an acknowledgement never overtakes what was said about the
    messages it acknowledges.
    """

    __slots__ = (
        "_acked", "_arrived", "_batch_size", "_sent", "_sent_base", "_stuck_at", "closings", "dirty", "fruitless",
        "greetings", "has_detached", "marked", "outbox", "received", "sent_bytes", "unacked_bytes", "unacknowledged",
    )  # fmt: skip

    def __init__(self, dirty: list[Session]) -> None:
        #: Shared with the shell: the sessions that have something to send.
        self.dirty = dirty
        self.marked = False
        self._start()

    def _start(self) -> None:
        self.outbox: list[bytes] = []
        self.greetings: list[bytes] = []
        self.closings: list[bytes] = []
        self.received = 0
        self.unacked_bytes = 0
        self._acked = 0
        #: Batches that were sent and not acknowledged, with their bytes.
        self._sent: deque[tuple[list[bytes], int]] = deque()
        self._arrived: list[bytes] = []
        self._sent_base = 0
        self._batch_size = 0
        #: Whether the batch that :meth:`batch` gave last has detached payloads.
        self.has_detached = False
        #: Messages that were sent and not acknowledged, and their bytes.
        self.unacknowledged = self.sent_bytes = 0
        #: How often in a row the peer resumed without having received a message more, and what it had then.
        self.fruitless = 0
        self._stuck_at = -1

    def send(self, part: bytes) -> None:
        """Queue a message of a session kind."""
        if not self.marked:
            self.marked = True
            self.dirty.append(self)
        self.outbox.append(part)

    def greet(self, part: bytes) -> None:
        """Queue a message about the link, to go before all others; it is lost if the connection is."""
        self.mark()
        self.greetings.append(part)

    def close_with(self, part: bytes) -> None:
        """Queue a message about the link, to go after all others; it is lost if the connection is.

        Of each kind the last one is sent: they can come faster than a peer that does not read takes them.
        """
        self.mark()
        closings = self.closings
        if closings:
            kind = part[KIND_AT]
            closings[:] = [other for other in closings if other[5] != kind]
        closings.append(part)

    def disconnected(self) -> None:
        """The connection is gone, and what was about it is void."""
        self.greetings.clear()
        self.closings.clear()

    def find_sent(self, key: bytes) -> bytes | None:
        """The message with ``key`` if it was sent and not acknowledged, or only by the last resumption."""
        sent = chain.from_iterable(reversed(parts) for parts, _ in reversed(self._sent))
        return next((part for part in chain(sent, reversed(self._arrived)) if part[KEY] == key), None)

    def mark(self) -> None:
        """There is something to send."""
        if not self.marked:
            self.marked = True
            self.dirty.append(self)

    @property
    def may_send(self) -> bool:
        """Whether there is something in the outbox that may be sent now."""
        return bool(self.outbox) and self.sent_bytes < WINDOW_BYTES

    def batch(self) -> list[bytes]:
        """The messages to send now as one batch; say :meth:`sent_batch` when they are gone."""
        outbox = self.outbox
        parts = outbox if len(outbox) <= BATCH_MESSAGES else outbox[:BATCH_MESSAGES]
        self.has_detached = Detached in map(type, parts)
        if self.has_detached and len(parts) > 1:
            room = BATCH_BYTES
            for count, part in enumerate(parts):
                room -= size_of(part)
                if room < 0 and count:
                    parts = parts[:count]
                    break
        self._batch_size = len(parts)
        return parts

    def sent_batch(self, size_bytes: int | None = None) -> None:
        """What :meth:`batch` gave was sent; it is kept until acknowledged.

        Args:
            size_bytes: of it, with its detached payloads; None: not known.
        """
        outbox, count = self.outbox, self._batch_size
        if count == len(outbox):
            # The list stays the same one: others look at its length while they fill it.
            sent = outbox.copy()
            outbox.clear()
        else:
            sent = outbox[:count]
            del outbox[:count]
        if size_bytes is None:
            size_bytes = sum(map(size_of, sent))
        self._sent.append((sent, size_bytes))
        self.unacknowledged += count
        self.sent_bytes += size_bytes
        if self.sent_bytes >= WINDOW_BYTES:
            self.window_full()

    def window_full(self) -> None:
        """Called when no more may be sent until the peer acknowledges."""

    def note_received(self, count: int, size_bytes: int) -> None:
        """Count what came; queues an ACK when one is due."""
        self.received += count
        self.unacked_bytes += size_bytes
        if self.received - self._acked >= ACK_MESSAGES or self.unacked_bytes >= ACK_BYTES:
            self.acknowledge()

    def acknowledge(self) -> None:
        """Queue an ACK if something was received since the last one."""
        if self.received != self._acked:
            self.close_with(message(Kind.ACK, sequence=self.received))
            self.note_acknowledged()

    def note_acknowledged(self) -> None:
        """The peer has been told, by whatever message, of all that was received."""
        self._acked = self.received
        self.unacked_bytes = 0

    def acknowledged(self, count: int) -> list[bytes]:
        """The peer has ``count`` messages of ours: forget and return those not yet acknowledged.

        Raises:
            ProtocolError: the peer claims more than was sent, or goes back.
        """
        fresh = count - self._sent_base
        if fresh < 0 or fresh > self.unacknowledged:
            last = self._sent_base + self.unacknowledged
            raise ProtocolError(f"acknowledged {count}, but {self._sent_base} to {last} is possible", "ack")
        self._sent_base = count
        if not fresh:
            return []
        self.unacknowledged -= fresh
        if self.outbox:
            self.mark()
        sent = self._sent
        parts, size_bytes = sent.popleft()
        arrived = parts
        while len(arrived) < fresh:
            parts, more_bytes = sent.popleft()
            size_bytes += more_bytes
            arrived = arrived + parts
        if len(arrived) > fresh:
            # Within a batch: of our own kind of peer no count is.
            rest = arrived[fresh:]
            rest_bytes = sum(map(size_of, rest))
            sent.appendleft((rest, rest_bytes))
            size_bytes -= rest_bytes
            arrived = arrived[:fresh]
        self.sent_bytes -= size_bytes
        return arrived

    def can_resume(self, peer_received: object) -> TypeGuard[int]:
        """Whether the peer can have received so many of our messages, and we still have the rest."""
        return type(peer_received) is int and 0 <= peer_received - self._sent_base <= self.unacknowledged

    def forget_arrived(self) -> None:
        """All that the peer says of what it had before the last resumption has been said."""
        self._arrived = []

    def resume(self, peer_received: int) -> list[bytes]:
        """Continue on a new connection: what the peer has not received goes to the front again.

        Returns what the peer did receive and had not acknowledged.

        Raises:
            ProtocolError: as :meth:`acknowledged`.
        """
        arrived = self._arrived = self.acknowledged(peer_received)
        again = self._take_sent()
        self.fruitless = self.fruitless + 1 if again and self._stuck_at == peer_received else 0
        self._stuck_at = peer_received
        self.outbox[:0] = again
        self.note_acknowledged()
        if self.outbox:
            self.mark()
        return arrived

    def abandon(self) -> tuple[list[bytes], list[bytes]]:
        """Start over with a peer that knows nothing of us: (sent but not acknowledged, never sent)."""
        sent, unsent = self._take_sent(), self.outbox
        self._start()
        return sent, unsent

    @property
    def sent(self) -> list[bytes]:
        """All that was sent and not acknowledged."""
        return list(chain.from_iterable(parts for parts, _ in self._sent))

    def _take_sent(self) -> list[bytes]:
        parts = self.sent
        self._sent.clear()
        self.unacknowledged = self.sent_bytes = 0
        return parts

    def unacknowledged_of(self, kinds: Collection[int]) -> int:
        """How many messages of ``kinds`` are still to be sent, or were sent and not acknowledged."""
        return sum(part[KIND_AT] in kinds for part in chain(self.sent, self.outbox))
