"""The loop of a client's connection: one request after the other, in order."""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Any

import gevent

from rpcmq.proxy.http.errors import ClientGone, HttpError, RefusedRequest
from rpcmq.proxy.http.exchange import Exchange
from rpcmq.proxy.http.heads import error_head, response_bytes
from rpcmq.proxy.http.limits import Limits
from rpcmq.proxy.http.requests import Request, RequestParser
from rpcmq.proxy.http.unread import SMALL_BYTES, UnreadBytes

__all__ = ["ConnectionCounters", "ServerConnection"]

_log = logging.getLogger("rpcmq.proxy")

_HEAD_BYTES = 16 * 1024
_BODY_BYTES = 256 * 1024
#: Bytes that are read at once of a body whose end is not known: further requests may be behind it.
_CHUNKED_BYTES = 64 * 1024
#: Bytes that are handed to the kernel at once.
_SEND_BYTES = 256 * 1024
#: Bytes after which a peer that is as fast as this process lets others have their turn.
_TURN_BYTES = 512 * 1024
#: Bytes that each piece counts for, however short: records of TLS may have one byte each.
_PIECE_BYTES = 4 * 1024
#: Requests that have come together after which it does, too.
_TURN_REQUESTS = 8
#: Bytes and seconds of a refused request that are still read, so that its client reads the answer rather than a reset.
_LINGER_BYTES = 512 * 1024
_LINGER_SECONDS = 2.0
_RESET = struct.pack("ii", 1, 0)


class ConnectionCounters:
    """Of all connections of a server, since its start."""

    def __init__(self) -> None:
        self.accepted = 0
        self.refused_connections = 0
        self.refused_requests: dict[int, int] = {}
        self.too_slow = 0
        self.handshakes_failed = 0


class ServerConnection:
    """Reads requests, has ``handler`` answer each, and closes the connection in the end.

    Its times are watched from outside: :meth:`check` is called a few times a second.

    Args:
        handler: answers a request; an error that it raises ends the connection.
        unread: counts what waits for the clients of all connections.
    """

    __slots__ = (
        "_counters", "_handler", "_has_stream", "_is_moving", "_is_reading", "_limits", "_mark", "_mark_moved",
        "_moved", "_parser", "_served", "_socket", "_turn", "_unread", "deadline", "expired", "is_busy", "is_last",
        "is_lost", "peer", "scheme",
    )  # fmt: skip

    def __init__(
        self,
        sock: Any,
        peer: str,
        handler: Callable[[Exchange], None],
        limits: Limits,
        counters: ConnectionCounters,
        unread: UnreadBytes,
    ) -> None:
        self._socket = sock
        self.peer = peer
        self.scheme = "http"
        self._handler = handler
        self._limits = limits
        self._counters = counters
        self._unread = unread
        self._has_stream = False
        self._parser = RequestParser(limits)
        self._served = 0
        self._turn = 0
        #: Whether the present request is the connection's last.
        self.is_last = False
        #: Whether a request is being answered.
        self.is_busy = False
        self.is_lost = False
        #: Time of the monotonic clock at which it is closed.
        self.deadline = monotonic() + limits.header_seconds
        self.expired = False
        self._is_reading = True
        self._is_moving = False
        self._moved = self._mark_moved = 0
        self._mark = 0.0

    # --- its times -----------------------------------------------------------------------------

    def check(self, now: float) -> None:
        """Close it if it is late, or too slow."""
        if now >= self.deadline:
            self._expire()
        elif not self._is_moving:
            self._mark = 0.0
        elif not self._mark:
            self._mark, self._mark_moved = now, self._moved
        elif now - self._mark >= self._limits.rate_seconds:
            if self._moved - self._mark_moved < self._limits.min_rate * (now - self._mark):
                self._counters.too_slow += 1
                self._expire()
            self._mark, self._mark_moved = now, self._moved

    def _expire(self) -> None:
        self.expired = True
        self.deadline = inf
        self.shut(socket.SHUT_RD if self._is_reading else socket.SHUT_RDWR)

    def shut(self, how: int) -> None:
        """Wake whoever waits for the socket; the layer of TLS is left alone."""
        try:
            socket.socket.shutdown(self._socket._sock, how)
        except (OSError, AttributeError):
            pass  # it is closed already

    def drain(self) -> None:
        """Close it once the present request is answered; at once if there is none."""
        self.is_last = True
        if not self.is_busy and not self._parser.in_head:
            self.shut(socket.SHUT_RD)

    # --- the loop ------------------------------------------------------------------------------

    def serve(self, context: Any = None) -> None:
        """Answer requests until the connection ends, in the present greenlet."""
        try:
            if context is not None and not self._handshake(context):
                return
            while (request := self._next()) is not None and self._answer(request):
                pass
        except (ClientGone, RefusedRequest, OSError):
            pass  # nobody is there to be told, or the answer is there and the rest of its request is refused
        finally:
            self._close()

    def _handshake(self, context: Any) -> bool:
        try:
            self._socket = context.wrap_socket(
                self._socket, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=True
            )
            self._socket.do_handshake()
        except (OSError, ValueError) as error:
            self._counters.handshakes_failed += 1
            _log.debug("TLS handshake with %s failed: %s", self.peer, error)
            return False
        self.scheme = "https"
        return True

    def _next(self) -> Request | None:
        """Wait for the head of a request; None: there is no further one."""
        parser, limits = self._parser, self._limits
        requests = parser.requests
        if requests or (parser.rest and parser.resume() and requests):
            # They came one behind the other: those of other clients have their turn between them.
            self._take_turn(_TURN_BYTES // _TURN_REQUESTS)
            return requests.popleft()
        self._is_reading = True
        if self._served:
            self.deadline = monotonic() + (limits.header_seconds if parser.in_head else limits.idle_seconds)
        has_begun = parser.in_head
        while parser.refused is None and not self.is_last:
            data = self._socket.recv(_HEAD_BYTES)
            if not data:
                if self.expired and parser.in_head:
                    self._counters.too_slow += 1
                    self._refuse(RefusedRequest(408, f"its head took longer than {limits.header_seconds:g} seconds"))
                return None
            parser.feed(data)
            self._take_turn(len(data))
            if requests:
                return requests.popleft()
            if parser.in_head and not has_begun:
                has_begun = True
                self.deadline = monotonic() + limits.header_seconds
        if parser.refused is not None:
            self._refuse(parser.refused)
        return None

    def _answer(self, request: Request) -> bool:
        """Have a request answered; return whether there may be another one."""
        self._served += 1
        if self._served >= self._limits.requests_for_connection:
            self.is_last = True
        self.deadline = inf
        self._is_reading = False
        self.is_busy = True
        exchange = Exchange(self, request)
        try:
            self._handler(exchange)
        except RefusedRequest as refused:
            if exchange.status:
                self.abort()
            else:
                self._refuse(refused)
            return False
        except HttpError as error:
            # What the client has of the response must not look like a whole one.
            _log.info("response to %s broken off: %s", self.peer, error)
            self.abort()
            return False
        except Exception:
            if exchange.status:
                self.abort()
            else:
                exchange.send_error(500, "This server failed.", closes=True)
            raise
        self.is_busy = False
        if exchange.is_tunnel:
            return False
        if not exchange.is_finished:
            self.abort()
            return False
        if not request.is_complete and not self._skip_body(exchange):
            self._linger()
            return False
        return exchange.keep_alive and not self.is_last

    def _skip_body(self, exchange: Exchange) -> bool:
        """Read what nobody wanted of a request's body, if it is short; return whether it has ended."""
        request = exchange.request
        if exchange.waits_for_continue or not exchange.keep_alive:
            return False
        if request.length is None or request.length - request.received > _BODY_BYTES:
            return False
        while not request.is_complete:
            request.chunks.clear()
            self.read_body(request)
        return True

    def _refuse(self, refused: RefusedRequest) -> None:
        counts = self._counters.refused_requests
        counts[refused.status] = counts.get(refused.status, 0) + 1
        head, body = error_head(refused.status, f"The request was refused: {refused.text}.")
        self.write(response_bytes(head, body, closes=True))
        self._linger()

    # --- for exchanges -------------------------------------------------------------------------

    def read_body(self, request: Request) -> None:
        """Wait for more of a request's body.

        Raises:
            ClientGone, RefusedRequest: see :meth:`Exchange.body`.
        """
        refused = self._parser.refused
        if refused is not None:
            raise refused  # it came with what was read before
        if self._parser.resume():
            return
        self._is_reading = self._is_moving = True
        try:
            # Little more than the body: what is behind it waits where it is.
            left = _CHUNKED_BYTES if request.length is None else request.length - request.received + _HEAD_BYTES
            data = self._socket.recv(min(left, _BODY_BYTES))
        except OSError as error:
            self.is_lost = True
            raise ClientGone(f"the connection broke within the request: {error}") from None
        finally:
            self._is_reading = self._is_moving = False
        if not data:
            if self.expired:
                raise RefusedRequest(408, "its body came too slowly")
            self.is_lost = True
            raise ClientGone("the connection ended within the request")
        self._moved += len(data)
        self._take_turn(len(data))
        self._parser.feed(data)
        refused = self._parser.refused
        if refused is not None and not request.is_complete:
            raise refused

    def write(self, data: bytes) -> None:
        """Send ``data``.

        Raises:
            ClientGone: it cannot be sent.
        """
        if len(data) <= SMALL_BYTES and not self._has_stream:
            self._send(data)
            return
        self._unread.begin_write(self, len(data))
        try:
            self._send(data)
        finally:
            self._unread.end_write(self)

    def _send(self, data: bytes) -> None:
        self._is_moving = True
        try:
            sent = self._socket.send(data if len(data) <= _SEND_BYTES else memoryview(data)[:_SEND_BYTES])
            self._moved += sent
            if sent < len(data):
                view = memoryview(data)
                while sent < len(data):
                    count = self._socket.send(view[sent : sent + _SEND_BYTES])
                    self._moved += count
                    sent += count
            if sent >= _SEND_BYTES:
                self._take_turn(sent)
        except OSError as error:
            self.is_lost = True
            raise ClientGone(f"the client cannot be written to: {error}") from None
        finally:
            self._is_moving = False

    def begin_stream(self, sizes: tuple[int, int]) -> int:
        """Reserve room for a response that comes as a stream: see :meth:`UnreadBytes.begin_stream`."""
        self._has_stream = True
        return self._unread.begin_stream(self, sizes)

    def end_stream(self) -> None:
        """Give that room back."""
        self._has_stream = False
        self._unread.end_stream(self)

    def cut_off(self) -> None:
        """End the connection, whose client reads too slowly while others need the memory."""
        _log.warning("the client %s is cut off: of all it reads slowest, and limits.unread_bytes is reached", self.peer)
        self._expire()

    def _take_turn(self, size: int) -> None:
        # A socket that is always ready never lets go of the loop by itself.
        self._turn += max(_PIECE_BYTES, size)
        if self._turn >= _TURN_BYTES:
            self._turn = 0
            gevent.sleep(0)

    def abort(self) -> None:
        """Reset the connection, so that the client knows that its response is not complete."""
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        except OSError:
            pass  # it is closed already
        self.is_lost = True

    def hand_over(self) -> tuple[Any, bytes]:
        """Give the socket to whoever speaks another protocol on it, and what has come of that."""
        self.deadline = inf
        return self._socket, self._parser.rest

    def _linger(self) -> None:
        """Let the client read the answer before the connection is reset by what it still sends."""
        self._is_reading = True
        self.deadline = monotonic() + _LINGER_SECONDS
        left = _LINGER_BYTES
        self.shut(socket.SHUT_WR)
        while left > 0 and (data := self._socket.recv(_BODY_BYTES)):
            left -= len(data)
            self._take_turn(len(data))

    def _close(self) -> None:
        self.deadline = inf
        try:
            self._socket.close()
        except OSError:
            _log.debug("a socket could not be closed", exc_info=True)
