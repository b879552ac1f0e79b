"""The connections that a router makes to other routers, each on a ZeroMQ DEALER socket of its own.

The engine asks for each (:class:`~rpcmq.core.router.actions.Dial`) and is told once that it stands, and once that it is
gone; it decides whether to dial again. What comes on them is read in turns of their own, so that neither they nor the
router's processes can keep the others waiting. A socket that may have something to be read is *ready*: its file
descriptor has said so, or something was sent on it, which can take that sign away.

Host names are looked up beside the loop: libzmq would look them up in the thread that moves the messages of all
connections.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any

import gevent
import zmq
from gevent.socket import getaddrinfo

from rpcmq.core.router.actions import Dial
from rpcmq.core.router.model import Link
from rpcmq.core.router.router import Router
from rpcmq.core.router.turns import TURN_STEPS
from rpcmq.transport.batches import BatchSocket
from rpcmq.transport.curve import Curve
from rpcmq.transport.dialed_router import DialedRouter
from rpcmq.transport.dialed_socket import DialedSocket
from rpcmq.transport.names import host_of, numeric_url
from rpcmq.transport.owned_sockets import socket_inode
from rpcmq.transport.router_connections import RouterConnections
from rpcmq.transport.shell import Shell
from rpcmq.transport.watch import LOST_EVENTS, Watchdog

__all__ = ["DialedRouters"]

#: Longest time until the handshake of a connection is done (seconds).
_PATIENCE = 5.0
#: Bytes received before it is the turn of the router's own socket.
_ROUND_BYTES = 8 << 20
#: Time for what was sent last to leave on a connection that the engine closes (seconds).
_LINGER = 1.0
#: Bytes that another router may send right after its WELCOME, before that is read: routers, addresses and patterns,
#: each of which has bounds of its own.
_AHEAD_BYTES = 8 << 20
_SHUTTING_DOWN = "this router is shutting down"


class DialedRouters:
    """Makes connections to other routers, and reads what comes on them.

    Args:
        router: the engine.
        connections: those of the router's own socket; which link has which file descriptor is known there.
        curve: the router's keys; None: it has none.
        wake: receives and sends what there is.
        has_linked: called with a link, and with the file descriptor of the connection that carries it from now on.
        shell: the loop.
        context: the ZeroMQ context to make the sockets in.
        max_bytes, lost_seconds: for :class:`~rpcmq.transport.batches.BatchSocket`.

    Attributes:
        by_route: each of them.
        ready: those that may have something to be read, the next one first.
    """

    def __init__(
        self,
        router: Router,
        connections: RouterConnections,
        curve: Curve | None,
        wake: Callable[[], None],
        has_linked: Callable[[Link, int], None],
        shell: Shell,
        context: zmq.Context[Any],
        max_bytes: int,
        lost_seconds: float = 60.0,
    ) -> None:
        self._router = router
        self._connections = connections
        self._curve = curve
        self._wake = wake
        self._has_linked = has_linked
        self._shell = shell
        self._context = context
        self._max_bytes = max_bytes
        self._lost_seconds = lost_seconds
        self._is_deaf = False
        self._lost_wakeups = 0
        self.by_route: dict[bytes, DialedRouter] = {}
        self.ready: deque[DialedRouter] = deque()

    @property
    def lost_wakeups(self) -> int:
        """Wake-ups that only a watchdog found. Must stay 0."""
        lost = self._lost_wakeups
        for connection in self.by_route.values():
            lost += connection.watchdog.lost if connection.watchdog is not None else 0
        return lost

    # --- to connect --------------------------------------------------------------------------

    def dial(self, dial: Dial) -> None:
        """Begin to connect. The engine is told later how that ended."""
        curve = self._curve
        keys = None
        if curve is not None and dial.server_key:
            keys = replace(curve, server_key=dial.server_key, domain="")
        connection = DialedRouter(dial, DialedSocket(self._shell, keys, self._context))
        self.by_route[dial.route] = connection
        connection.patience = self._shell.call_later(_PATIENCE, partial(self._has_taken_too_long, connection))
        if self._is_deaf:
            self._fail_soon(connection, _SHUTTING_DOWN)
        elif dial.server_key and curve is None:
            self._fail_soon(connection, "it has a server_key, and this router has no keys: set security.keys")
        elif host_of(dial.url) is None:
            self._open(connection, dial.url)
        else:
            connection.lookup = gevent.spawn(partial(self._open_by_name, connection))

    def _fail_soon(self, connection: DialedRouter, problem: str) -> None:
        # Not at once: the engine, which may dial again at once, is just having its actions done.
        self._shell.call_soon(self._end, connection, problem)

    def _open_by_name(self, connection: DialedRouter) -> None:
        url, problem = numeric_url(getaddrinfo, connection.url)
        if self.by_route.get(connection.route) is not connection:
            return
        connection.lookup = None
        if problem:
            self._end(connection, problem)
        else:
            self._open(connection, url)

    def _open(self, connection: DialedRouter, url: str) -> None:
        on_readable = partial(self._on_readable, connection)
        try:
            connection.transport.open(
                url,
                self._max_bytes,
                self._lost_seconds,
                partial(self._on_event, connection),
                on_readable,
                partial(self._end, connection),
            )
        except Exception as error:  # a url or key that libzmq does not take, or no file descriptor left
            self._fail_soon(connection, f"cannot connect to it: {error}")
            return
        connection.watchdog = Watchdog(partial(self._socket_to_watch, connection), on_readable, self._shell)
        connection.watchdog.start()
        # What came before it was listened to gave no sign.
        self._note_ready(connection)
        self._shell.call_soon(self._wake)

    def _socket_to_watch(self, connection: DialedRouter) -> BatchSocket | None:
        # What is ready is going to be read, however late that comes.
        return None if connection.is_ready or self._is_deaf else connection.socket

    def _has_taken_too_long(self, connection: DialedRouter) -> None:
        # Where this process was stopped meanwhile, its handshake may be done, and be told of next.
        connection.transport.read_events()
        if connection.lookup is not None:
            self._end(connection, f"the name of its host was not looked up within {_PATIENCE:g} s")
        elif not connection.stands:
            what = "answer" if connection.fd < 0 else "end of the handshake"
            self._end(connection, f"no {what} within {_PATIENCE:g} s")

    # --- what the sockets tell ---------------------------------------------------------------

    def _on_event(self, connection: DialedRouter, event: int, value: int) -> None:
        try:
            if event == zmq.EVENT_CONNECTED:
                self._reached(connection, value)
            elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED and not connection.stands:
                connection.stands = True
                self._stop_patience(connection)
                self._router.connected(monotonic(), connection.route)
                self._shell.call_soon(self._wake)
            elif event in LOST_EVENTS and not connection.problem:
                self._gone(connection, connection.why_gone(event))
        except Exception:
            self._router.faults.report(monotonic())

    def _reached(self, connection: DialedRouter, fd: int) -> None:
        inode = socket_inode(fd)
        if inode is not None:
            connection.fd, connection.inode = fd, inode
            # Until it carries a link it is bounded in time and bytes, as those are that others make.
            self._connections.admit(fd, _AHEAD_BYTES)

    def _gone(self, connection: DialedRouter, problem: str) -> None:
        was_ended = connection.link is not None and connection.route not in self._router.links.routes
        if was_ended or not connection.stands or self._is_deaf:
            self._end(connection, problem)
            return
        # What came before the end is read first, in turns as ever.
        connection.problem = problem
        self._on_readable(connection)

    def _on_readable(self, connection: DialedRouter) -> None:
        self._note_ready(connection)
        self._wake()

    def _note_ready(self, connection: DialedRouter) -> None:
        if not connection.is_ready and not self._is_deaf:
            connection.is_ready = True
            self.ready.append(connection)

    # --- to receive and send -----------------------------------------------------------------

    def receive(self, most: int) -> int:
        """Receive from those that are ready, one message of each at a time, until the turn is over.

        Args:
            most: messages.

        Returns:
            How many were received.
        """
        turns, ready = self._router.turns, self.ready
        rounds, room, is_asked = 0, _ROUND_BYTES, False
        while rounds < most and room > 0 and turns.spent <= TURN_STEPS and (not is_asked or self.has_more()):
            is_asked = True  # the first one has given a sign
            connection = ready[0]
            ready.rotate(-1)
            try:
                room -= self._receive(connection)
                rounds += 1
            except zmq.Again:
                pass  # nothing has come on it
            except Exception:
                self._router.faults.report(monotonic())
                self._end(connection, "internal error while receiving from it")
        # The router's own socket has a turn of its own next.
        turns.spent = 0
        return rounds

    def _receive(self, connection: DialedRouter) -> int:
        """Receive a message; return its bytes.

        Raises:
            zmq.Again: there is none.
        """
        socket, route = connection.socket, connection.route
        if socket is None:
            raise zmq.Again
        _, batch, payloads = socket.receive()
        self._router.receive(monotonic(), route, batch, payloads)
        link = self._router.links.routes.get(route)
        if link is not connection.link and link is not None and connection.fd >= 0:
            connection.link = link
            self._connections.dialed_has_linked(route, connection.fd, connection.inode)
            self._has_linked(link, connection.fd)
        if payloads:
            return len(batch) + sum(map(len, payloads))
        return len(batch)

    def has_more(self) -> bool:
        """Return whether anything waits to be read; the next of ``ready`` has it then."""
        ready = self.ready
        while ready:
            connection = ready[0]
            if connection.watchdog is not None:
                connection.watchdog.wakes += 1
            if connection.socket is not None and connection.socket.readable():
                return True
            ready.popleft()
            connection.is_ready = False
            if connection.problem:
                self._end(connection, connection.problem)
        return False

    def socket_to(self, route: bytes) -> BatchSocket | None:
        """The socket to send on to ``route`` now; None: it is no connection of these, or not open."""
        connection = self.by_route.get(route)
        if connection is None or connection.socket is None:
            return None
        self._note_ready(connection)
        return connection.socket

    def send(self, route: bytes, message: bytes) -> bool:
        """Send ``message``; return whether ``route`` is one of these. One that is full takes nothing."""
        socket = self.socket_to(route)
        if socket is None:
            return route in self.by_route
        try:
            socket.send(route, (message,))
        except zmq.Again:
            pass  # it is told at the next attempt, if it reads again
        return True

    # --- the end -----------------------------------------------------------------------------

    def disconnect(self, route: bytes) -> bool:
        """Close a connection; what was sent on it leaves first. Returns whether it was one of these.

        The engine is told nothing more of it.
        """
        connection = self.by_route.get(route)
        return connection is not None and self._close(connection, _LINGER)

    def _end(self, connection: DialedRouter, problem: str) -> None:
        """Close a connection that is gone, or could not be made, and tell the engine."""
        if self._close(connection, 0.0):
            self._router.lost(monotonic(), connection.route, problem)
            self._shell.call_soon(self._wake)

    def _close(self, connection: DialedRouter, linger_seconds: float) -> bool:
        """Close ``connection``; return whether it was known."""
        if self.by_route.get(connection.route) is not connection:
            return False
        del self.by_route[connection.route]
        if connection.is_ready:
            self.ready.remove(connection)
            connection.is_ready = False
        self._stop_patience(connection)
        if connection.lookup is not None and connection.lookup is not gevent.getcurrent():
            connection.lookup.kill(block=False)
        if connection.watchdog is not None:
            self._lost_wakeups += connection.watchdog.lost
            connection.watchdog.stop()
        self._connections.forget_dialed(connection.route, connection.fd, connection.inode)
        # Nothing leaves any more on one that is gone.
        connection.transport.close(0.0 if connection.problem else linger_seconds)
        return True

    def _stop_patience(self, connection: DialedRouter) -> None:
        if connection.patience is not None:
            connection.patience.stop()
            connection.patience.close()
            connection.patience = None

    def stop_reading(self) -> None:
        """Read nothing more; what is queued can still be sent."""
        self._is_deaf = True
        self.ready.clear()
        for connection in list(self.by_route.values()):
            connection.is_ready = False
            connection.transport.stop_reading()
            if connection.problem:
                self._end(connection, connection.problem)

    def hang_up(self) -> None:
        """Close all, once what was sent on them has left: this router has said on each that it has shut down."""
        for connection in list(self.by_route.values()):
            if self._close(connection, _LINGER):
                self._router.lost(monotonic(), connection.route, _SHUTTING_DOWN)

    def close(self, linger_seconds: float) -> None:
        """Close all; queued messages have ``linger_seconds`` to leave."""
        self._is_deaf = True
        for connection in list(self.by_route.values()):
            self._close(connection, linger_seconds)

    def abandon(self, loop_runs: bool) -> None:
        """After a fork, in the child: forget the parent's sockets without touching them."""
        self._is_deaf = True
        if loop_runs:
            for connection in self.by_route.values():
                self._stop_patience(connection)
                if connection.lookup is not None:
                    connection.lookup.kill(block=False)
                if connection.watchdog is not None:
                    connection.watchdog.stop()
                connection.transport.abandon()
