"""The connections of a router's socket: of which link each is, and when it has ended.

libzmq names a connection by its route, and reports its ends by file descriptor; a message tells both.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from time import monotonic

import gevent
import zmq

from rpcmq.core.router.router import Router
from rpcmq.transport.batches import BatchSocket
from rpcmq.transport.handshake_counts import HandshakeCounts
from rpcmq.transport.owned_sockets import break_connection, received_bytes, socket_inode
from rpcmq.transport.shell import Shell
from rpcmq.transport.unidentified import UnidentifiedConnections
from rpcmq.transport.watch import ConnectionWatch
from rpcmq.wire import Kind, pack

__all__ = ["RouterConnections"]

#: Delays before checking that a connection reported closed has left the socket (seconds).
_PROBES = (0.0, 0.02, 0.1, 0.5)
_PROBE = pack(Kind.HEARTBEAT)


class RouterConnections:
    """The connections of ``socket``.

    Args:
        router: the engine, which knows the link of each route.
        socket: a bound ROUTER.
        unidentified: connections without a link are entered here.
        on_unidentified: called when there is one, and was none before.
        on_lost: called with the route of a link whose connection has ended.
        shell: the loop in which it is called.

    Attributes:
        sockets: file descriptor and inode of each link's connection, by route; of those, too, that this router has
            made itself.
    """

    def __init__(
        self,
        router: Router,
        socket: BatchSocket,
        unidentified: UnidentifiedConnections,
        on_unidentified: Callable[[], None],
        on_lost: Callable[[bytes], None],
        shell: Shell,
    ) -> None:
        self._router = router
        self._socket = socket
        self._unidentified = unidentified
        self._on_unidentified = on_unidentified
        self._on_lost = on_lost
        self.sockets: dict[bytes, tuple[int, int]] = {}
        self._routes_by_fd: dict[int, bytes] = {}
        self._handshakes = HandshakeCounts(router.links.counters)
        self._closed = False
        self._watch = ConnectionWatch(socket.socket, self._on_event, shell)

    def __len__(self) -> int:
        return len(self._handshakes.greeted) + len(self._unidentified)

    def send(self, route: bytes, message: bytes) -> bool:
        """Send to a connection that may be gone; return whether it still exists."""
        try:
            self._socket.send(route, (message,))
        except zmq.Again:
            return True
        except zmq.ZMQError as error:
            if error.errno != errno.EHOSTUNREACH:
                raise
            return False
        return True

    def disconnect(self, route: bytes) -> None:
        """Break the connection of a link."""
        known = self.sockets.get(route)
        if known is not None:
            break_connection(*known)

    def forget(self, route: bytes) -> None:
        """Know the connection of a link no more: it was broken, or has ended."""
        self.sockets.pop(route, None)

    def has_greeted(self, route: bytes) -> int | None:
        """Handle HELLO, the last message received, once the engine has.

        Returns:
            The file descriptor of the connection if it has a link now.
        """
        # What it was before, and that it was accepted, may not have been read yet.
        self._watch.read()
        fd = self._socket.last_fd()
        old = self._routes_by_fd.get(fd)
        if old is not None and old != route:
            self.forget(old)
            self._probe(old)
        self._handshakes.has_greeted(fd)
        if route not in self._router.links.routes:
            return None
        self._routes_by_fd[fd] = route
        if not self._unidentified.forget(fd) and old is None:
            # It had ended before its HELLO was read.
            self._probe_soon(route)
        inode = socket_inode(fd)
        if inode is None:
            return None
        self.sockets[route] = fd, inode
        return fd

    def admit(self, fd: int, received: int = 0) -> None:
        """Bound the connection ``fd`` as one without a link; ``received`` bytes have come on it before."""
        self._unidentified.admit(monotonic(), fd, received)
        if len(self._unidentified) == 1:
            self._on_unidentified()

    def dialed_has_linked(self, route: bytes, fd: int, inode: int) -> None:
        """The connection ``fd``, which this router has made itself, carries a link from now on."""
        self._unidentified.forget(fd, inode)
        self.sockets[route] = fd, inode

    def forget_dialed(self, route: bytes, fd: int, inode: int) -> None:
        """Forget a connection that this router has made itself."""
        self._unidentified.forget(fd, inode)
        self.forget(route)

    def reset_to_handshake(self, route: bytes) -> None:
        """Reset a connection whose link has ended to the handshake phase, and bound it as one without a link."""
        if route not in self.sockets or route in self._router.links.routes:
            return
        fd, inode = self.sockets.pop(route)
        self._routes_by_fd.pop(fd, None)
        if socket_inode(fd) == inode:
            self.admit(fd, received_bytes(fd) or 0)

    def _on_event(self, event: int, value: int) -> None:
        try:
            self._handshakes.event(event, value)
            if event == zmq.EVENT_ACCEPTED:
                self.admit(value)
            elif event == zmq.EVENT_DISCONNECTED:
                self._disconnected(value)
        except Exception:
            self._router.faults.report(monotonic())

    def _disconnected(self, fd: int) -> None:
        self._unidentified.forget(fd)
        route = self._routes_by_fd.pop(fd, None)
        if route is not None:
            self.forget(route)
            self._probe_soon(route)

    def _probe_soon(self, route: bytes) -> None:
        # The event can come before the ROUTER has noticed, so ask it more than once.
        for after in _PROBES:
            gevent.spawn_later(after, self._probe, route)

    def _probe(self, route: bytes) -> None:
        if not self._closed and route in self._router.links.routes and not self.send(route, _PROBE):
            self._on_lost(route)

    def close(self) -> None:
        """Stop watching; the socket is the owner's to close."""
        self._closed = True
        self._watch.close()

    def abandon(self, loop_runs: bool) -> None:
        """After a fork, in the child: stop watching without touching the parent's sockets."""
        self._closed = True
        if loop_runs:
            self._watch.abandon()
