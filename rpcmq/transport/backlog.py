"""Bytes that have come on a connection and that the router has not read: libzmq holds them, in the router's memory.

libzmq reads each connection as fast as it can. What it reads waits without a bound, since its receive high-water mark
is off (see ``batches``), and of a ZeroMQ message with many frames nothing is handed over before the last has come.
The system counts the bytes received on each TCP connection; what the router has read of them is known, so the
difference is what libzmq holds. Where that is too much the connection is broken, and libzmq lets go of it.

The system is asked only when this process has grown.
"""

from __future__ import annotations

import os
import socket
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from struct import Struct
from time import monotonic

from gevent import get_hub
from gevent.monkey import get_original

from rpcmq.core.router.links import Link
from rpcmq.core.router.router import Router

__all__ = ["STRANGER_BYTES", "BacklogWatch", "Stranger", "received_bytes"]

#: What may come before HELLO, which has at most 34,085 bytes; and with it, before it is read.
STRANGER_BYTES = 128 << 10
#: How often the size of this process is looked at (seconds), and the growth from which on its connections are.
_PERIOD = 0.1
_GROWTH = 16 << 20
#: Connections looked at in one go.
_AT_ONCE = 2000
#: Bytes a second of which a connection's account may be wrong: heartbeats of ZMTP are seen by libzmq only.
_DRIFT = 100
_PAGE = os.sysconf("SC_PAGE_SIZE")
# In a patched process, too, without the machinery of gevent: nothing is received or sent here.
_Socket: type[socket.socket] = get_original("socket", "socket")
#: ``tcpi_bytes_received`` in Linux's ``struct tcp_info``.
_BYTES_RECEIVED = Struct("=128xQ")


class Stranger:
    """A connection that has not said HELLO, or has left its link."""

    __slots__ = ("received", "since", "socket")

    def __init__(self, socket: int, since: float, received: int) -> None:
        #: Which socket it is: file descriptors are used again.
        self.socket = socket
        self.since = since
        #: Bytes that had come on it then.
        self.received = received


def received_bytes(fd: int) -> int | None:
    """Bytes that have come on the TCP connection ``fd`` since it stands; None: it is none, or not to be known."""
    try:
        with _Socket(fileno=os.dup(fd)) as own:
            if own.family not in (socket.AF_INET, socket.AF_INET6):
                return None
            info = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_RECEIVED.size)
    except OSError:
        return None
    if len(info) < _BYTES_RECEIVED.size:
        return None
    (received,) = _BYTES_RECEIVED.unpack(info)
    return int(received)


class BacklogWatch:
    """Breaks the connections of which libzmq holds too much.

    Args:
        router: the engine, whose links count what was read of their connections.
        sockets: file descriptor, and which socket that is, of each link's connection, by route.
        strangers: connections without a link, by file descriptor.
        cut: called with a file descriptor and which socket that is: breaks that connection.
    """

    def __init__(
        self,
        router: Router,
        sockets: dict[bytes, tuple[int, int]],
        strangers: OrderedDict[int, Stranger],
        cut: Callable[[int, int], None],
    ) -> None:
        self._router = router
        self._sockets = sockets
        self._strangers = strangers
        self._cut = cut
        self._memory = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._size = self._resident()
        #: Routes that are still to be looked at in this turn.
        self._unseen: Iterator[bytes] = iter(())
        self._timer = get_hub().loop.timer(_PERIOD, _PERIOD)
        self._timer.start(self._look)

    def _resident(self) -> int:
        return int(os.pread(self._memory, 64, 0).split()[1]) * _PAGE

    def begin(self, link: Link, fd: int) -> None:
        """``link`` has a new connection: what came on it so far was read."""
        link.read_bytes = received_bytes(fd) or 0

    def _look(self) -> None:
        try:
            size = self._resident()
            self._size = min(self._size, size)
            if size - self._size >= _GROWTH:
                self.look(size)
        except Exception:
            self._router.faults.report(monotonic())

    def look(self, size_bytes: int = 0) -> None:
        """Look at the connections without a link, and at the next of those that have one.

        Args:
            size_bytes: of this process, taken as usual once all were looked at.
        """
        self._cut_strangers()
        routes = list(islice(self._unseen, _AT_ONCE))
        if not routes:
            self._unseen = iter(list(self._sockets))
            routes = list(islice(self._unseen, _AT_ONCE))
        held: list[tuple[int, bytes]] = []
        for route in routes:
            link = self._router.links.routes.get(route)
            if link is not None and (unread := self._unread(route, link)):
                held.append((unread, route))
        self._cut_links(held)
        if len(routes) < _AT_ONCE:
            self._size = size_bytes

    def _cut_strangers(self) -> None:
        for fd, stranger in list(self._strangers.items()):
            received = received_bytes(fd)
            if received is not None and received - stranger.received > STRANGER_BYTES:
                del self._strangers[fd]
                self._router.links.counters["cut: too much before HELLO"] += 1
                self._cut(fd, stranger.socket)

    def _unread(self, route: bytes, link: Link) -> int:
        known = self._sockets.get(route)
        received = received_bytes(known[0]) if known is not None else None
        if received is None:
            return 0
        unread = received - link.read_bytes
        if unread < 0:
            # The frames around what it sent were taken for longer than they were.
            link.read_bytes = received
            return 0
        return max(0, unread - int(_DRIFT * (monotonic() - link.since)))

    def _cut_links(self, held: list[tuple[int, bytes]]) -> None:
        """Break those that have more than their limit, and if all have too much, those that have most."""
        settings = self._router.settings
        total = sum(unread for unread, _ in held)
        for unread, route in sorted(held, reverse=True):
            if unread <= settings.inbox_max_bytes and total <= settings.router_max_bytes // 2:
                break
            total -= unread
            link = self._router.links.routes.get(route)
            fd, known = self._sockets[route]
            if link is not None:
                text = (
                    f"{unread} bytes came faster than they are read; link.inbox_max_bytes = {settings.inbox_max_bytes}"
                )
                self._router.links.counters["cut: too much unread"] += 1
                self._router.links.end_safely(monotonic(), link, text)
            self._cut(fd, known)

    def close(self) -> None:
        """Stop."""
        self._timer.stop()
        self._timer.close()
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1
