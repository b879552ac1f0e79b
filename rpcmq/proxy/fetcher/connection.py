"""One connection to an origin, and the response that comes over it."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from ssl import SSLWantReadError
from time import monotonic
from typing import Any

import gevent
from gevent.socket import create_connection

from rpcmq.proxy.fetcher.responses import MalformedResponse, ResponseParser
from rpcmq.proxy.http.errors import TruncatedBody

__all__ = ["CHUNK_BYTES", "OriginConnection", "OriginResponse", "OriginStalled", "OriginUnreachable", "StaleConnection"]

#: Bytes that are read, and handed on, at once.
CHUNK_BYTES = 256 * 1024
#: Reads after which others have their turn: records of TLS may have one byte each, and always be there.
_TURN_READS = 64
#: Beginning of the response with which some servers close a connection that nobody has used for long.
_TIMED_OUT = (b"HTTP/1.1 408", b"HTTP/1.0 408")
_PEEK = socket.MSG_PEEK | socket.MSG_DONTWAIT


class OriginUnreachable(Exception):
    """No connection could be made, or it broke before a response had come; the text says why."""


class OriginStalled(Exception):
    """An origin did not say anything in time; the text says for how long."""


class StaleConnection(OriginUnreachable):
    """A connection that had been kept was closed by its origin before it said anything."""


class OriginConnection:
    """A connection that sends one request after the other, and no two at once.

    Args:
        address: host and port.
        context: of TLS; None: plain.
        server_name: whose certificate it must be.
        connect_seconds: that connecting, and the TLS handshake, may take each.

    Raises:
        OriginUnreachable, OriginStalled: there is none.
    """

    def __init__(self, address: tuple[str, int], context: Any, server_name: str, connect_seconds: float) -> None:
        self.uses = 0
        self.idle_since = 0.0
        #: Whether its origin has said something that nobody had asked for.
        self.has_said_more = False
        self._is_tls = context is not None
        sock: Any = None
        try:
            sock = create_connection(address, timeout=connect_seconds)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                sock = context.wrap_socket(sock, server_hostname=server_name)
        except TimeoutError:
            _close(sock)
            raise OriginStalled(f"no connection within {connect_seconds:g} s") from None
        except (OSError, ValueError) as error:
            _close(sock)
            raise OriginUnreachable(f"no connection: {error}") from None
        self.socket = sock

    def is_usable(self) -> bool:
        """Return whether its origin has neither closed it nor said anything since the last response."""
        sock = self.socket
        try:
            # Below the layer of TLS.
            data = sock._sock.recv(len(_TIMED_OUT[0]), _PEEK)
        except BlockingIOError:
            return not self._is_tls or not sock.pending()
        except OSError:
            return False
        if not data:
            return False
        if self._is_tls:
            sock.settimeout(0.0)
            try:
                data = sock.recv(len(_TIMED_OUT[0]))
            except (BlockingIOError, SSLWantReadError):
                return True  # what came was of TLS itself: tickets
            except OSError:
                return False
        self.has_said_more = bool(data) and data not in _TIMED_OUT
        return False

    def exchange(
        self,
        head: bytes,
        body: bytes | Iterable[bytes],
        *,
        is_head: bool,
        first_byte_seconds: float,
        idle_seconds: float,
    ) -> OriginResponse:
        """Send a request and wait for the head of its response.

        Args:
            head: of the request, as bytes.
            body: in one piece, or framed chunks as they are to be sent.
            is_head: whether the method is HEAD.
            first_byte_seconds: from the end of the request to the response's head.
            idle_seconds: the longest time without progress.

        Raises:
            StaleConnection: it had been used before, and is closed.
            OriginUnreachable: it broke.
            OriginStalled: it took too long.
            MalformedResponse: no response came, but something else.
        """
        sock, was_used = self.socket, self.uses > 0
        self.uses += 1
        parser = ResponseParser(is_head=is_head)
        sent_all = True
        try:
            sock.settimeout(idle_seconds)
            if isinstance(body, bytes):
                data = head + body if body else head
                # Of what is short all is sent at once; sendall would prepare for more.
                sent = sock.send(data)
                if sent < len(data):
                    sock.sendall(memoryview(data)[sent:])
            else:
                sock.sendall(head)
                sent_all = self._send_chunks(body)
            sock.settimeout(first_byte_seconds)
            end = monotonic() + first_byte_seconds
            reads = 0
            while not parser.has_head:
                data = sock.recv(CHUNK_BYTES)
                if (reads := reads + 1) % _TURN_READS == 0:
                    gevent.sleep(0)
                if not data:
                    broke = "the connection ended before a response"
                    raise StaleConnection(broke) if was_used and not parser.headers else OriginUnreachable(broke)
                parser.feed(data)
                if not parser.has_head and monotonic() > end:
                    raise TimeoutError
        except TimeoutError:
            self.close()
            raise OriginStalled(f"no response within {first_byte_seconds:g} s") from None
        except OSError as error:
            self.close()
            kind = StaleConnection if was_used and not parser.headers else OriginUnreachable
            raise kind(f"the connection broke: {error}") from None
        except BaseException:
            self.close()
            raise
        if not sent_all:
            parser.may_reuse = False
        sock.settimeout(idle_seconds)
        return OriginResponse(self, parser)

    def _send_chunks(self, body: Iterable[bytes]) -> bool:
        """Send a body as it comes; return whether the origin took all of it.

        One that answers before the end, as with 413, may close: its response is read all the same.
        """
        for chunk in body:
            try:
                self.socket.sendall(chunk)
            except (BrokenPipeError, ConnectionResetError):
                return False
        return True

    def close(self) -> None:
        """Close it. May be called again."""
        _close(self.socket)


class OriginResponse:
    """A response whose head has come.

    Attributes:
        parser: has its head.
    """

    def __init__(self, connection: OriginConnection, parser: ResponseParser) -> None:
        self.connection = connection
        self.parser = parser
        self._reads = 0

    def body(self) -> Iterator[bytes]:
        """Yield the body as it comes, at most 256 KiB at once.

        Raises:
            TruncatedBody: it ended before its end, or stalled, or is malformed.
        """
        parser = self.parser
        while True:
            if parser.chunks:
                yield parser.take()
            elif parser.is_complete:
                return
            else:
                self._read_more()

    def body_at_hand(self, most: int, seconds: float) -> bytes:
        """Return the beginning of the body, if need be waiting for it: of a short one all.

        Args:
            most: bytes after which it stops, about.
            seconds: that it waits for a body whose length is not known, or that is longer than ``most``.

        Raises:
            TruncatedBody: as :meth:`body`.
        """
        parser = self.parser
        if parser.is_complete:
            return parser.take()
        pieces = [parser.take()]
        size = len(pieces[0])
        is_short = parser.length is not None and parser.length <= most
        end = monotonic() + seconds
        while not parser.is_complete and size < most:
            if is_short:
                self._read_more()
            elif not self._read_within(end - monotonic()):
                break  # the rest comes as a stream
            pieces.append(parser.take())
            size += len(pieces[-1])
        return b"".join(pieces)

    def _read_within(self, seconds: float) -> bool:
        """Read more, and return whether some came in time."""
        sock = self.connection.socket
        normal = sock.gettimeout()
        sock.settimeout(max(seconds, 0.0))
        try:
            data = sock.recv(CHUNK_BYTES)
        except (TimeoutError, BlockingIOError, SSLWantReadError):
            return False
        except OSError as error:
            raise TruncatedBody(f"the connection broke within the body: {error}") from None
        finally:
            sock.settimeout(normal)
        self._take(data)
        return True

    def _read_more(self) -> None:
        try:
            data = self.connection.socket.recv(CHUNK_BYTES)
        except TimeoutError:
            raise TruncatedBody("the origin stalled within the body") from None
        except OSError as error:
            raise TruncatedBody(f"the connection broke within the body: {error}") from None
        self._take(data)

    def _take(self, data: bytes) -> None:
        self._reads += 1
        if self._reads % _TURN_READS == 0:
            gevent.sleep(0)
        if not data:
            if not self.parser.end():
                raise TruncatedBody("the connection ended within the body")
            return
        try:
            self.parser.feed(data)
        except MalformedResponse as error:
            raise TruncatedBody(f"the body is malformed: {error}") from None


def _close(sock: Any) -> None:
    if sock is not None:
        try:
            sock.close()
        except OSError:
            pass  # it is of no use any more
