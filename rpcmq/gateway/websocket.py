"""The WebSocket of one connection after its handshake (RFC 6455): bytes in, messages out, and bytes to be sent.

Extensions are not agreed on: without permessage-deflate no small message becomes a large one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, TextMessage
from wsproto.events import Ping as PingFrame
from wsproto.events import Pong as PongFrame
from wsproto.utilities import LocalProtocolError

from rpcmq.gateway.effects import POLICY_VIOLATION, TOO_BIG, UNSUPPORTED_DATA

__all__ = ["Closed", "Pinged", "Received", "Violation", "WebSocket"]

#: Frames of one message. Browsers send one; proxies may cut large ones.
_MOST_FRAMES = 4096


@dataclass(frozen=True, slots=True)
class Received:
    """A text message."""

    text: str


@dataclass(frozen=True, slots=True)
class Pinged:
    """A ping, or an answer to one; ``answer`` is to be sent."""

    answer: bytes


@dataclass(frozen=True, slots=True)
class Closed:
    """The other side closes; ``answer`` is to be sent, and is empty where this side closed first."""

    code: int
    answer: bytes


@dataclass(frozen=True, slots=True)
class Violation:
    """The other side broke the protocol or a limit: close with this code."""

    code: int
    reason: str


class WebSocket:
    """A server's end of a WebSocket.

    Args:
        max_bytes: of a message.
        first_bytes: of a message until :meth:`accept`; None: as of the others.
        is_client: the other end; of use in tests.
    """

    def __init__(self, max_bytes: int, first_bytes: int | None = None, is_client: bool = False) -> None:
        self._connection = Connection(ConnectionType.CLIENT if is_client else ConnectionType.SERVER)
        self._max_bytes = max_bytes
        self._first_bytes = first_bytes
        self._pieces: list[str] = []
        self._size = self._frames = 0
        self._is_over = False
        #: Frames that came, and pieces of them: what the reading costs.
        self.seen = 0

    def accept(self) -> None:
        """Let messages have all ``max_bytes`` from now on."""
        self._first_bytes = None

    def receive(self, data: bytes) -> Iterator[Received | Pinged | Closed | Violation]:
        """Take bytes of the other side. After :class:`Closed` and :class:`Violation` nothing more comes."""
        if self._is_over:
            return
        self._connection.receive_data(data)
        for event in self._connection.events():
            self.seen += 1
            match event:
                case TextMessage():
                    found = self._text(event)
                    if found is None:
                        continue
                    self._is_over = isinstance(found, Violation)
                    yield found
                case BytesMessage():
                    self._is_over = True
                    yield Violation(UNSUPPORTED_DATA, "messages are text: JSON")
                case PingFrame():
                    yield Pinged(self._connection.send(event.response()))
                case PongFrame():
                    yield Pinged(b"")
                case CloseConnection():
                    self._is_over = True
                    yield self._closed(event)
            if self._is_over:
                self._pieces.clear()
                return

    def _closed(self, event: CloseConnection) -> Closed | Violation:
        if self._connection.state is ConnectionState.REMOTE_CLOSING:
            return Closed(int(event.code), self._connection.send(event.response()))
        if self._connection.state is ConnectionState.CLOSED:
            return Closed(int(event.code), b"")
        return Violation(int(event.code), event.reason or "malformed frame")

    def _text(self, event: TextMessage) -> Received | Violation | None:
        piece = str(event.data)
        self._size += len(piece) if piece.isascii() else len(piece.encode(errors="surrogatepass"))
        self._frames += 1
        if self._first_bytes is not None and self._size > self._first_bytes:
            return Violation(TOO_BIG, f"the first message has more than {self._first_bytes} bytes")
        if self._size > self._max_bytes:
            return Violation(TOO_BIG, f"a message has more bytes than message.max_bytes = {self._max_bytes}")
        # Each piece costs memory and work, however short it is.
        if self._frames > _MOST_FRAMES + self._max_bytes // 1024:
            return Violation(POLICY_VIOLATION, "a message comes in too many frames")
        if piece:
            self._pieces.append(piece)
        if not event.message_finished:
            return None
        text = "".join(self._pieces)
        self._pieces.clear()
        self._size = self._frames = 0
        return Received(text)

    def text(self, message: bytes) -> bytes:
        """Return the frame of a text message in UTF-8; empty: this side has closed."""
        return self._send(TextMessage(data=message.decode()))

    def ping(self) -> bytes:
        """Return the frame of a ping; empty: this side has closed."""
        return self._send(PingFrame())

    def close(self, code: int, reason: str) -> bytes:
        """Return the frame of a close; empty: this side has closed already."""
        return self._send(CloseConnection(code=code, reason=reason))

    def _send(self, event: TextMessage | PingFrame | CloseConnection) -> bytes:
        try:
            return self._connection.send(event)
        except LocalProtocolError:
            return b""
