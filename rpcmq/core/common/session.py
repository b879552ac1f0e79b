"""A session: outbox, unacknowledged messages and counts of one link.

Both ends keep the same *session*: every message of a session kind is counted, the receiver
acknowledges by count now and then, and the sender keeps what is not acknowledged. After a reconnect
each side says how many it has received and the other sends the rest again, so a broken connection
loses nothing and doubles nothing as long as both processes live.

Between routers what is sent at once is bounded, and a large payload is *cut* into pieces, each a message of the
session. So the other end hears and acknowledges something meanwhile, and a resumption goes on in the middle.

What was sent and not acknowledged is bounded: beyond ``WINDOW_BYTES`` the rest waits in the outbox. A
message that ends each connection that it is sent on (``MAX_FAILED_RESUMPTIONS``) is not sent again for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from itertools import chain
from typing import Final, TypeGuard

from rpcmq.core.common.illegal_events import IllegalEvents
from rpcmq.errors import ProtocolError
from rpcmq.wire import KEY, KIND_AT, Detached, Kind, pack, size_of
from rpcmq.wire.pieces import cut, is_to_cut

__all__ = [
    "ACK_BYTES",
    "ACK_MESSAGES",
    "BATCH_BYTES",
    "BATCH_MESSAGES",
    "CUT_WINDOW_BYTES",
    "MAX_FAILED_RESUMPTIONS",
    "WINDOW_BYTES",
    "Session",
    "illegal_of_links",
]

#: Messages or bytes after which a receiver must acknowledge.
ACK_MESSAGES = 128
ACK_BYTES = 256 * 1024
#: Most messages in a batch, and most bytes of detached payloads unless there is only one.
BATCH_MESSAGES = 256
BATCH_BYTES = 1 << 20
#: Unacknowledged bytes above which nothing more is sent. A receiver acknowledges every ``ACK_BYTES``.
WINDOW_BYTES = 16 << 20
#: The same while a payload is sent in pieces: others that share the connection wait behind them.
CUT_WINDOW_BYTES = 4 << 20
#: So many messages without detached payloads fit into a batch of :data:`BATCH_BYTES` for sure.
_FEW = 30
#: Consecutive resumptions without progress after which the link ends.
MAX_FAILED_RESUMPTIONS = 5


#: The illegal events of all sessions of this process, but for uplinks, which have their own.
illegal_of_links: Final = IllegalEvents()


class Session:
    """Counts, retains and re-sends the messages of a link.

    ``outbox`` collects messages until the shell sends them, as a batch, at the end of a wake-up.
    Messages about the link itself are neither counted nor kept: ``first_messages`` go out before the
    outbox, ``last_messages`` after it, so that an acknowledgement never overtakes what was said about the
    messages it acknowledges.
    """

    __slots__ = (
        "_acked",
        "_arrived",
        "_batch_size",
        "_sent",
        "_sent_base",
        "_stuck_at",
        "cuts",
        "dirty",
        "failed_resumptions",
        "first_messages",
        "has_detached",
        "illegal",
        "last_messages",
        "marked",
        "outbox",
        "received",
        "sent_bytes",
        "unacked_bytes",
        "unacknowledged",
        "window_bytes",
        "written_bytes",
    )  # fmt: skip

    def __init__(self, dirty: list[Session]) -> None:
        self.illegal = illegal_of_links
        #: Shared with the shell: the sessions that have something to send.
        self.dirty = dirty
        self.marked = False
        #: Whether the other end is a router that takes large payloads in pieces.
        self.cuts = False
        self._start()

    def _start(self) -> None:
        self.outbox: list[bytes] = []
        self.first_messages: list[bytes] = []
        self.last_messages: list[bytes] = []
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
        #: Bytes of all messages that were sent in this session.
        self.written_bytes = 0
        #: Unacknowledged bytes above which nothing more is sent at present.
        self.window_bytes = WINDOW_BYTES
        #: Number of consecutive resumptions without progress, and the count acknowledged at the last one.
        self.failed_resumptions = 0
        self._stuck_at = -1

    def send(self, message: bytes) -> None:
        """Queue a message of a session kind."""
        if not self.marked:
            self.marked = True
            self.dirty.append(self)
        self.outbox.append(message)

    def send_first(self, message: bytes) -> None:
        """Queue a message about the link, to go before all others; it is lost if the connection is."""
        self.mark()
        self.first_messages.append(message)

    def send_last(self, message: bytes) -> None:
        """Queue a message about the link, to go after all others; it is lost if the connection is.

        Of each kind the last one is sent: they can come faster than a peer that does not read takes them.
        """
        self.mark()
        last_messages = self.last_messages
        if last_messages:
            kind = message[KIND_AT]
            last_messages[:] = [other for other in last_messages if other[KIND_AT] != kind]
        last_messages.append(message)

    def disconnected(self) -> None:
        """Discard control messages: the connection is gone."""
        self.first_messages.clear()
        self.last_messages.clear()

    def find_sent(self, key: bytes) -> bytes | None:
        """Return the latest message with ``key`` that was sent and not acknowledged, or None."""
        sent = chain.from_iterable(reversed(messages) for messages, _ in reversed(self._sent))
        return next((message for message in sent if message[KEY] == key), None)

    def find_arrived(self, key: bytes) -> bytes | None:
        """Return the latest message with ``key`` that the last resumption acknowledged, or None."""
        return next((message for message in reversed(self._arrived) if message[KEY] == key), None)

    def mark(self) -> None:
        """List this session among those with something to send."""
        if not self.marked:
            self.marked = True
            self.dirty.append(self)

    @property
    def sent_messages(self) -> int:
        """Number of messages that were sent in this session, and have arrived or may arrive."""
        return self._sent_base + self.unacknowledged

    @property
    def may_send(self) -> bool:
        """Whether the outbox has messages and the window is open."""
        return bool(self.outbox) and self.sent_bytes < self.window_bytes

    def batch(self) -> list[bytes]:
        """The messages to send now as one batch; say :meth:`batch_was_sent` when they are gone."""
        outbox = self.outbox
        if self.cuts:
            self._cut_first()
        messages = outbox if len(outbox) <= BATCH_MESSAGES else outbox[:BATCH_MESSAGES]
        self.has_detached = Detached in map(type, messages)
        is_large = self.cuts and len(messages) > _FEW and sum(map(len, messages)) > BATCH_BYTES
        if is_large or (self.has_detached and len(messages) > 1):
            room = BATCH_BYTES
            for count, message in enumerate(messages):
                room -= size_of(message)
                if room < 0 and count:
                    messages = messages[:count]
                    break
        self._batch_size = len(messages)
        return messages

    def _cut_first(self) -> None:
        """Cut the first message of the outbox, if it is large; the window is narrower while pieces are sent."""
        outbox = self.outbox
        first = outbox[0]
        if is_to_cut(first):
            outbox[:1] = cut(first)
            self.window_bytes = CUT_WINDOW_BYTES
        elif first[KIND_AT] != Kind.PIECE:
            self.window_bytes = WINDOW_BYTES

    def batch_was_sent(self, size_bytes: int | None = None) -> None:
        """Record that the last :meth:`batch` was sent; it is retained until acknowledged.

        Args:
            size_bytes: of it, with its detached payloads; None: not known.
        """
        outbox, count = self.outbox, self._batch_size
        if not 0 < count <= len(outbox):
            self._batch_size = 0
            self.illegal.add("session: a batch was sent that it has not given")
            return
        sent = outbox.copy() if count == len(outbox) else outbox[:count]
        if size_bytes is None:
            size_bytes = sum(map(size_of, sent))
        # One call, at the end: a signal's handler, which can raise, comes after calls and where loops begin anew.
        # Keep the list object: callers check its length while filling it.
        del outbox[:count]
        self._batch_size = 0
        self.unacknowledged += count
        self.sent_bytes += size_bytes
        self.written_bytes += size_bytes
        self._sent.append((sent, size_bytes))
        if self.sent_bytes >= self.window_bytes:
            self.window_full()

    def sending_was_interrupted(self) -> None:
        """Count the last :meth:`batch` as sent, unless it is: a resumption tells whether it has arrived."""
        if self._batch_size:
            self.batch_was_sent(0)

    def window_full(self) -> None:
        """Called when no more may be sent until the peer acknowledges."""

    def count_received(self, count: int, size_bytes: int) -> None:
        """Count received messages; queue an ACK when one is due."""
        self.received += count
        self.unacked_bytes += size_bytes
        if self.received - self._acked >= ACK_MESSAGES or self.unacked_bytes >= ACK_BYTES:
            self.acknowledge()

    def acknowledge(self) -> None:
        """Queue an ACK if something was received since the last one."""
        if self.received != self._acked:
            self.send_last(pack(Kind.ACK, sequence=self.received))
            self.ack_was_sent()

    def ack_was_sent(self) -> None:
        """Record that some message has told the peer the full receive count."""
        self._acked = self.received
        self.unacked_bytes = 0

    def acknowledged(self, count: int) -> list[bytes]:
        """Handle the peer's receive count: forget and return the newly acknowledged messages.

        Raises:
            ProtocolError: the peer claims more than was sent, or goes back.
        """
        fresh = count - self._sent_base
        if fresh < 0 or fresh > self.unacknowledged:
            raise self._impossible(count)
        # Counts first: :meth:`receiving_was_interrupted` goes by them.
        self._sent_base = count
        if not fresh:
            return []
        self.unacknowledged -= fresh
        sent = self._sent
        messages, size_bytes = sent.popleft()
        arrived = messages
        while len(arrived) < fresh:
            messages, more_bytes = sent.popleft()
            size_bytes += more_bytes
            arrived = arrived + messages
        if len(arrived) > fresh:
            # Inside a batch, which our own implementation never does.
            rest = arrived[fresh:]
            rest_bytes = sum(map(size_of, rest))
            sent.appendleft((rest, rest_bytes))
            size_bytes -= rest_bytes
            arrived = arrived[:fresh]
        self.sent_bytes -= size_bytes
        if self.outbox:
            self.mark()
        return arrived

    def _impossible(self, count: int) -> ProtocolError:
        last = self._sent_base + self.unacknowledged
        return ProtocolError(f"acknowledged {count}; expected {self._sent_base} to {last}", "ack")

    def receiving_was_interrupted(self) -> None:
        """Forget what an interrupted :meth:`acknowledged` has left of the messages that have arrived."""
        rest = self.sent
        del rest[: len(rest) - self.unacknowledged]
        sizes = sum(map(size_of, rest))
        left = deque([(rest, sizes)] if rest else [])
        self._sent, self.sent_bytes = left, sizes
        if self.outbox:
            self.mark()

    def can_resume(self, peer_received: object) -> TypeGuard[int]:
        """Return whether the peer's receive count is possible, and we still have the later messages."""
        return type(peer_received) is int and 0 <= peer_received - self._sent_base <= self.unacknowledged

    def forget_arrived(self) -> None:
        """Forget messages acknowledged by the last resumption: nothing more will refer to them."""
        self._arrived = []

    def resume(self, peer_received: int) -> list[bytes]:
        """Resume on a new connection: requeue the messages that the peer has not received at the front.

        Returns what the peer did receive and had not acknowledged.

        Raises:
            ProtocolError: as :meth:`acknowledged`.
        """
        fresh, sent = peer_received - self._sent_base, self.sent
        if not 0 <= fresh <= self.unacknowledged:
            raise self._impossible(peer_received)
        arrived, again = sent[:fresh], sent[fresh:]
        none_sent = deque[tuple[list[bytes], int]]()
        # No call in between, as in :meth:`batch_was_sent`.
        self._arrived = arrived
        self._sent_base = peer_received
        self.outbox[:0] = again
        self._sent = none_sent
        self.unacknowledged = self.sent_bytes = 0
        self.failed_resumptions = self.failed_resumptions + 1 if again and self._stuck_at == peer_received else 0
        self._stuck_at = peer_received
        self.ack_was_sent()
        if self.outbox:
            self.mark()
        return arrived

    def abandon(self) -> tuple[list[bytes], list[bytes]]:
        """Start over with a peer that knows nothing of us: (sent but not acknowledged, never sent)."""
        sent, unsent = self.sent, self.outbox
        self._start()
        return sent, unsent

    @property
    def sent(self) -> list[bytes]:
        """Return the messages sent and not acknowledged."""
        return list(chain.from_iterable(messages for messages, _ in self._sent))

    def unacknowledged_of(self, kinds: Collection[int]) -> int:
        """Return the number of messages of ``kinds`` that are queued, or sent and not acknowledged."""
        return sum(message[KIND_AT] in kinds for message in chain(self.sent, self.outbox))
