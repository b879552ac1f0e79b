"""One link as an engine sees it: what is to be sent, what was sent and not acknowledged, what came.

Both ends keep the same *session*: every message of a session kind is counted, the receiver
acknowledges by count now and then, and the sender keeps what is not acknowledged. After a reconnect
each side says how many it has received and the other sends the rest again, so a broken connection
loses nothing and doubles nothing as long as both processes live.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from itertools import chain

from rpcmq.errors import ProtocolError
from rpcmq.wire import Kind, message

__all__ = ["ACK_BYTES", "ACK_MESSAGES", "BATCH_MESSAGES", "Session"]

#: A receiver acknowledges at the latest after so many messages or bytes.
ACK_MESSAGES = 128
ACK_BYTES = 256 * 1024
#: A batch has at most so many messages.
BATCH_MESSAGES = 256


class Session:
    """The counting, keeping and re-sending half of a link.

    ``outbox`` collects messages until the shell sends them, as a batch, at the end of a wake-up.
    Messages about the link itself are neither counted nor kept: ``greetings`` go out before the
    outbox, ``closings`` after it, so that an acknowledgement never overtakes what was said about the
    messages it acknowledges.
    """

    __slots__ = (
        "_acked", "_arrived", "_sent", "_sent_base", "closings", "dirty", "greetings", "marked", "outbox", "received",
        "unacked_bytes",
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
        self._sent: deque[bytes] = deque()
        self._arrived: list[bytes] = []
        self._sent_base = 0

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
        """Queue a message about the link, to go after all others; it is lost if the connection is."""
        self.mark()
        self.closings.append(part)

    def disconnected(self) -> None:
        """The connection is gone, and what was about it is void."""
        self.greetings.clear()
        self.closings.clear()

    def find_sent(self, key: bytes) -> bytes | None:
        """The message with ``key`` if it was sent and not acknowledged, or only by the last resumption."""
        kept = chain(reversed(self._sent), reversed(self._arrived))
        return next((part for part in kept if part[16:36] == key), None)

    def mark(self) -> None:
        """There is something to send."""
        if not self.marked:
            self.marked = True
            self.dirty.append(self)

    def batch(self) -> list[bytes]:
        """The messages to send now as one batch; say :meth:`sent_batch` when they are gone."""
        outbox = self.outbox
        return outbox if len(outbox) <= BATCH_MESSAGES else outbox[:BATCH_MESSAGES]

    def sent_batch(self) -> None:
        """What :meth:`batch` gave was sent; it is kept until acknowledged."""
        outbox = self.outbox
        if len(outbox) <= BATCH_MESSAGES:
            self._sent.extend(outbox)
            outbox.clear()
        else:
            self._sent.extend(outbox[:BATCH_MESSAGES])
            del outbox[:BATCH_MESSAGES]

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
        if fresh < 0 or fresh > len(self._sent):
            raise ProtocolError(
                f"acknowledged {count}, but {self._sent_base} to {self._sent_base + len(self._sent)} is possible",
                "ack",
            )
        self._sent_base = count
        popleft = self._sent.popleft
        return [popleft() for _ in range(fresh)]

    def can_resume(self, peer_received: int) -> bool:
        """Whether the peer can have received so many of our messages, and we still have the rest."""
        return 0 <= peer_received - self._sent_base <= len(self._sent)

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
        self.outbox[:0] = self._sent
        self._sent.clear()
        self.note_acknowledged()
        if self.outbox:
            self.mark()
        return arrived

    def abandon(self) -> tuple[list[bytes], list[bytes]]:
        """Start over with a peer that knows nothing of us: (sent but not acknowledged, never sent)."""
        sent, unsent = list(self._sent), self.outbox
        self._start()
        return sent, unsent

    def unacknowledged_of(self, kinds: Collection[int]) -> int:
        """How many messages of ``kinds`` are still to be sent, or were sent and not acknowledged."""
        return sum(part[5] in kinds for part in chain(self._sent, self.outbox))

    @property
    def unacknowledged(self) -> int:
        """How many sent messages the peer has not acknowledged."""
        return len(self._sent)
