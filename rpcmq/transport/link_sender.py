"""Sends the outboxes of a router's links, and gives up a connection on which that fails."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from time import monotonic

import zmq

from rpcmq.core.common.session import Session
from rpcmq.core.router.model import Link
from rpcmq.core.router.router import Router
from rpcmq.transport.batches import BatchSocket, flush_session
from rpcmq.transport.dialed_routers import DialedRouters
from rpcmq.transport.router_connections import RouterConnections

__all__ = ["LinkSender"]


class LinkSender:
    """Sends on ``socket`` whatever the links of ``router`` have queued.

    Args:
        connections: those of the socket.
        dialed: connections to other routers, with sockets of their own.
        on_gone: called with the route of a connection that the socket no longer has.

    Attributes:
        blocked: links whose connection takes nothing at present, to be tried again.
    """

    __slots__ = ("_connections", "_dialed", "_dialed_routes", "_on_gone", "_router", "_socket", "_suspects", "blocked")

    def __init__(
        self,
        router: Router,
        socket: BatchSocket,
        connections: RouterConnections,
        dialed: DialedRouters,
        on_gone: Callable[[bytes], None],
    ) -> None:
        self._router = router
        self._socket = socket
        self._connections = connections
        self._dialed = dialed
        self._dialed_routes = dialed.by_route
        self._on_gone = on_gone
        self.blocked: set[Link] = set()
        #: Origins of links to which the last send raised.
        self._suspects: set[bytes] = set()

    def send(self, link: Session) -> None:
        """Send what ``link`` has queued. Never raises."""
        assert isinstance(link, Link)
        try:
            self._flush(link)
            return
        except Exception:
            self._router.faults.report(monotonic())
        try:
            self._give_up(link)
        except Exception:
            self._router.faults.report(monotonic())

    def _flush(self, link: Link) -> None:
        route = link.route
        if route is None:
            return
        socket = self._socket
        if self._dialed_routes and (dialed := self._dialed.socket_to(route)) is not None:
            socket = dialed
        try:
            flush_session(socket, link, route)
            if self._suspects:
                self._suspects.discard(link.origin)
        except zmq.Again:
            self.blocked.add(link)
        except zmq.ZMQError as error:
            if error.errno != errno.EHOSTUNREACH:
                raise
            self._on_gone(route)

    def put(self, route: bytes, messages: Sequence[bytes]) -> bool:
        """Send ``messages`` as one batch on a connection; return False if it takes nothing now. Never raises."""
        try:
            dialed = self._dialed.socket_to(route) if self._dialed_routes else None
            (dialed or self._socket).send(route, messages)
        except zmq.Again:
            return False
        except Exception as error:
            if isinstance(error, zmq.ZMQError) and error.errno == errno.EHOSTUNREACH:
                self._on_gone(route)
            else:
                self._break(route)
            return False
        return True

    def _break(self, route: bytes) -> None:
        self._router.faults.report(monotonic())
        try:
            self._disconnect(route)
        except Exception:
            self._router.faults.report(monotonic())

    def _disconnect(self, route: bytes) -> None:
        if not self._dialed.disconnect(route):
            self._connections.disconnect(route)
            self._connections.forget(route)
        self._router.lost(monotonic(), route, "internal error while sending")

    def _give_up(self, link: Link) -> None:
        """Break the connection of a link whose messages could not be sent: its process resumes the session.

        The second time in a row the link ends, because its messages would fail again each time.
        """
        route, again = link.route, link.origin in self._suspects
        if route is not None:
            # Send nothing more on it: part of the failed batch may have been sent.
            self._disconnect(route)
        if again:
            self._suspects.discard(link.origin)
            self._router.links.end(monotonic(), link, "internal error while sending")
        else:
            self._suspects.add(link.origin)
