"""A request and the response to it, on a connection of a client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from rpcmq.proxy.http.errors import ClientGone, HttpError
from rpcmq.proxy.http.heads import CONTINUE, error_head, head_bytes
from rpcmq.proxy.http.requests import Request
from rpcmq.proxy.messages import ResponseHead

__all__ = ["ClientConnection", "Exchange"]


class ClientConnection(Protocol):
    """The parts of a connection that an exchange uses: see :class:`rpcmq.proxy.http.connection.ServerConnection`."""

    peer: str
    scheme: str
    is_last: bool
    is_lost: bool

    def read_body(self, request: Request) -> None:
        """Wait for more of the body of ``request``."""

    def write(self, data: bytes) -> None:
        """Send ``data``."""

    def begin_stream(self, sizes: tuple[int, int]) -> int:
        """Reserve room for a response that comes as a stream; see :class:`rpcmq.proxy.http.unread.UnreadBytes`."""

    def end_stream(self) -> None:
        """Give that room back."""

    def hand_over(self) -> tuple[Any, bytes]:
        """Give the socket away, and what has come and was not parsed."""


class Exchange:
    """Answer a request with :meth:`send`, or with :meth:`start`, :meth:`write` and :meth:`finish`.

    All of them raise :class:`ClientGone` if the client cannot be written to any more.

    Attributes:
        request: the request.
        status: of the response; 0: none has begun.
        sent: bytes of the response's body that were sent.
        is_finished: whether the response was sent whole.
        keep_alive: whether the connection goes on afterwards.
    """

    __slots__ = (
        "_chunked", "_connection", "_continued", "_head", "_is_bodiless", "_left", "is_finished", "is_tunnel",
        "keep_alive", "request", "sent", "status",
    )  # fmt: skip

    def __init__(self, connection: ClientConnection, request: Request) -> None:
        self.request = request
        self._connection = connection
        self.status = 0
        self.sent = 0
        self.is_finished = False
        self.is_tunnel = False
        self.keep_alive = request.keep_alive and not connection.is_last
        self._head = b""
        self._left: int | None = None
        self._chunked = False
        self._is_bodiless = False
        self._continued = False

    @property
    def peer(self) -> str:
        """The client's address."""
        return self._connection.peer

    @property
    def scheme(self) -> str:
        """``https`` or ``http``: that of the connection."""
        return self._connection.scheme

    # --- the request's body --------------------------------------------------------------------

    def body(self) -> Iterator[bytes]:
        """Yield the request's body as it comes; a client that waits for ``100 Continue`` is given that first.

        Raises:
            ClientGone: the connection ended before the body, or the client was too slow.
            RefusedRequest: the body is malformed, or longer than it may be.
        """
        request = self.request
        if request.expects_continue and not self._continued and not request.chunks and not request.is_complete:
            self._continued = True
            if self.status == 0:
                self._connection.write(CONTINUE)
        chunks = request.chunks
        while True:
            while chunks:
                # Small chunks go on together: each piece costs those behind this as much as a large one.
                piece = chunks.popleft() if len(chunks) == 1 else b"".join(chunks)
                chunks.clear()
                yield piece
            if request.is_complete:
                return
            self._connection.read_body(request)

    @property
    def waits_for_continue(self) -> bool:
        """Whether the client holds the body back until it is told to go on."""
        request = self.request
        return request.expects_continue and not self._continued and not request.is_complete and not request.received

    # --- the response --------------------------------------------------------------------------

    def send_prepared(self, data: bytes, status: int, size: int) -> None:
        """Send a whole response, made for a connection that goes on, whose body has ``size`` bytes."""
        self.status = status
        self.sent = size
        self._connection.write(data)
        self.is_finished = True

    def send(self, head: ResponseHead, body: bytes) -> None:
        """Send a whole response, in one write."""
        self.start(head, len(body))
        if body:
            self.write(body)
        self.finish()

    def send_error(self, status: int, text: str, *, closes: bool = False) -> None:
        """Send an answer of this server's own; see :func:`rpcmq.proxy.http.heads.error_head`."""
        if closes:
            self.keep_alive = False
        head, body = error_head(status, text)
        self.send(head, body)

    def start(self, head: ResponseHead, length: int | None) -> None:
        """Begin the response; its head leaves with the first bytes of its body.

        Args:
            length: bytes of the body, None: not known. Where there is no body (HEAD, 204, 304): what Content-Length
                says of it, None for none.
        """
        request = self.request
        if self.waits_for_continue:
            self.keep_alive = False  # the client may send the body all the same, or not
        self.status = head.status
        bodiless = head.status in (204, 304)
        self._is_bodiless = bodiless or request.method == b"HEAD"
        framing = ""
        if length is not None:
            self._left = length
            if head.status != 204:
                framing = f"Content-Length: {length}\r\n"
        elif not self._is_bodiless:
            if request.is_http_11:
                self._chunked = True
                framing = "Transfer-Encoding: chunked\r\n"
            else:
                self.keep_alive = False
        elif head.status not in (204, 304) and request.is_http_11:
            framing = "Transfer-Encoding: chunked\r\n"
        if not self.keep_alive:
            framing += "Connection: close\r\n"
        elif not request.is_http_11:
            framing += "Connection: keep-alive\r\n"
        self._head = head_bytes(head, framing)

    def write(self, chunk: bytes) -> None:
        """Send a piece of the body; of a response that has none it is dropped.

        Raises:
            HttpError: the body is longer than was said.
        """
        if self._is_bodiless or not chunk:
            return
        size = len(chunk)
        if self._left is not None:
            self._left -= size
            if self._left < 0:
                raise HttpError("the body is longer than its Content-Length")
        if self._chunked:
            data = b"%s%x\r\n%s\r\n" % (self._head, size, chunk)
        else:
            data = self._head + chunk if self._head else chunk
        self._head = b""
        self._connection.write(data)
        self.sent += size

    def flush(self) -> None:
        """Send the head, if it has not left yet."""
        if self._head:
            data, self._head = self._head, b""
            self._connection.write(data)

    def finish(self) -> None:
        """End the response.

        Raises:
            HttpError: the body is shorter than was said.
        """
        if self._left and not self._is_bodiless:
            raise HttpError(f"{self._left} bytes of the body are missing")
        if self._chunked:
            data, self._head = self._head + b"0\r\n\r\n", b""
            self._connection.write(data)
        else:
            self.flush()
        self.is_finished = True

    def begin_stream(self, sizes: tuple[int, int]) -> int:
        """Reserve room for a response that comes as a stream; return which of ``sizes`` (bytes, the larger first)
        there is, 0 if none. Call :meth:`end_stream` in the end.
        """
        return self._connection.begin_stream(sizes)

    def end_stream(self) -> None:
        """Give that room back."""
        self._connection.end_stream()

    def tunnel(self) -> tuple[Any, bytes]:
        """Take over the connection; return its socket and the bytes that came after the request."""
        self.is_tunnel = True
        self.keep_alive = False
        return self._connection.hand_over()

    def check_client(self) -> None:
        """Raise :class:`ClientGone` if the connection is known to be lost."""
        if self._connection.is_lost:
            raise ClientGone("the client is gone")
