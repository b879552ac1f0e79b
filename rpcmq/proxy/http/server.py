"""Listens for clients, and bounds their connections."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from time import monotonic
from typing import Any

import gevent
from gevent.server import StreamServer
from gevent.socket import socket as GeventSocket

from rpcmq.client.limited_log import RateLimitedLog
from rpcmq.errors import ConfigError
from rpcmq.proxy.http.connection import ConnectionCounters, ServerConnection
from rpcmq.proxy.http.exchange import Exchange
from rpcmq.proxy.http.limits import Limits
from rpcmq.proxy.http.unread import UnreadBytes

__all__ = ["HttpServer", "listen"]

_log = logging.getLogger("rpcmq.proxy")

_BACKLOG = 1024
#: Seconds between two looks at the times of all connections.
_CHECK_SECONDS = 0.25
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"


def listen(address: str, *, name: str, shared: bool = False) -> Any:
    """A socket of gevent that listens at ``address``, a host and a port with a colon between.

    Args:
        name: of the setting, for the error.
        shared: let other processes listen at the same address, too; the kernel spreads connections over them.

    Raises:
        ConfigError: it cannot.
    """
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdigit()):
        raise ConfigError(f"{name} = {address!r}: expected host:port, like '127.0.0.1:8443'")
    host = host.removeprefix("[").removesuffix("]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = GeventSocket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # Linux gives it to the connections, too.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.bind((host, int(port)))
        sock.listen(_BACKLOG)
    except (OSError, OverflowError, ValueError) as error:
        sock.close()
        raise ConfigError(f"{name} = {address!r}: cannot listen there: {error}") from None
    return sock


class HttpServer:
    """Serves HTTP/1.1 on sockets that listen.

    Args:
        handler: answers each request, in the greenlet of its connection.
        limits: see :class:`Limits`.
    """

    def __init__(self, handler: Callable[[Exchange], None], limits: Limits) -> None:
        self._handler = handler
        self._limits = limits
        self._log = RateLimitedLog(_log)
        self._servers: list[StreamServer] = []
        self._connections: set[ServerConnection] = set()
        self._by_address: dict[str, int] = {}
        self._is_draining = False
        self._checker: Any = None
        self.counters = ConnectionCounters()
        self.unread = UnreadBytes(limits.unread_bytes)

    @property
    def open_connections(self) -> int:
        """Number of connections now."""
        return len(self._connections)

    @property
    def busy_connections(self) -> int:
        """Number of requests that are being answered now."""
        return sum(connection.is_busy for connection in self._connections)

    def serve_on(self, listener: Any, context: Callable[[], Any] | None = None) -> None:
        """Take connections from ``listener``.

        Args:
            context: gives the context of TLS for the next connection; None: plain HTTP.
        """

        def take(sock: Any, peer: Any) -> None:
            self._serve(sock, peer, context)

        server = StreamServer(listener, take)
        server.start()
        self._servers.append(server)
        if self._checker is None:
            self._checker = gevent.spawn(self._check)

    def stop(self, seconds: float) -> int:
        """Take no more connections, and let requests be answered.

        Args:
            seconds: that this may take.

        Returns:
            Number of requests that were broken off.
        """
        self._is_draining = True
        end = monotonic() + seconds
        for server in self._servers:
            server.close()
        for connection in tuple(self._connections):
            connection.drain()
        while self._connections and monotonic() < end:
            gevent.sleep(0.02)
        broken = self.busy_connections
        for connection in tuple(self._connections):
            connection.shut(socket.SHUT_RDWR)
        if self._checker is not None:
            self._checker.kill()
            self._checker = None
        return broken

    def _serve(self, sock: Any, peer: Any, context: Callable[[], Any] | None) -> None:
        address = peer[0] if peer else "unix"
        counters, limits = self.counters, self._limits
        counters.accepted += 1
        open_here = self._by_address.get(address, 0)
        if len(self._connections) >= limits.connections or open_here >= limits.connections_for_address:
            counters.refused_connections += 1
            self._refuse(sock, context is None)
            return
        self._by_address[address] = open_here + 1
        connection = ServerConnection(sock, address, self._handler, limits, counters, self.unread)
        connection.is_last = self._is_draining
        self._connections.add(connection)
        try:
            connection.serve(context() if context is not None else None)
        except Exception as error:
            self._log.error(type(error).__name__, f"a request of {address} failed: {error!r}", error)
        finally:
            self._connections.discard(connection)
            if self._by_address[address] == 1:
                del self._by_address[address]
            else:
                self._by_address[address] -= 1

    def _refuse(self, sock: Any, is_plain: bool) -> None:
        try:
            if is_plain:
                sock._sock.send(_FULL)
        except OSError:
            pass  # it is refused in any case
        finally:
            sock.close()

    def _check(self) -> None:
        while True:
            gevent.sleep(_CHECK_SECONDS)
            now = monotonic()
            for connection in tuple(self._connections):
                connection.check(now)
