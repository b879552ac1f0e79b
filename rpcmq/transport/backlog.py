"""Bytes that have come on a connection and that the router has not read: libzmq holds them, in the router's memory.

libzmq reads each connection as fast as it can. What it reads waits without a bound, since its receive high-water mark
is off (see ``batches``), and of a ZeroMQ message with many frames nothing is handed over before the last has come.
The system counts the bytes received on each TCP connection; what the router has read of them is known, so the
difference is what libzmq holds. Where that is too much the connection is broken, and libzmq lets go of it.

That is so in bytes of the network. An empty frame is 2 of them, and 64 in libzmq's memory, and nothing tells how many
frames a message has had that has not ended. So this process's own size is looked at, too: where it has grown by far
more than what has come and what the engine holds, whoever has most under way is cut, but keeps its link: an honest
process resumes it and sends the message again. A message under way as large as any may be explains as much as it is.

Links are looked at only when this process has grown.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter
from time import monotonic

from gevent import get_hub

from rpcmq.core.router.actions import LogEvent
from rpcmq.core.router.model import Link
from rpcmq.core.router.router import Router
from rpcmq.transport.owned_sockets import break_connection, received_bytes
from rpcmq.transport.unidentified import UnidentifiedConnections

__all__ = ["UNIDENTIFIED_BYTES", "UnreadBytesWatch"]

#: Bytes that may come before HELLO, which has at most 34,085 bytes; and with it, before it is read.
UNIDENTIFIED_BYTES = 128 << 10
#: The interval of checks of this process's size (seconds), and the growth from which on its connections are checked.
_PERIOD = 0.05
_GROWTH = 16 << 20
#: Connections looked at in one go; and of those without a link, while this process does not grow.
_AT_ONCE = 2000
_UNIDENTIFIED_AT_ONCE = 100
#: Bytes of memory for one that came, at most: an empty frame's.
_AMPLIFIED = 32
#: Growth that nothing explains is borne up to this part of ``router.max_bytes``, or so many bytes.
_UNEXPLAINED_PART = 16
_UNEXPLAINED_BYTES = 64 << 20
#: This process grows for other reasons, too: so much of it is forgotten in a second.
_FORGIVEN = 256 << 10
#: With fewer bytes under way than this no connection is to blame.
_UNDER_WAY = 1 << 20
#: Bytes a second of which a connection's account may be wrong: heartbeats of ZMTP are seen by libzmq only.
_DRIFT = 100
_AMPLIFIES = "cut: took far more memory than it sent"
_PAGE = os.sysconf("SC_PAGE_SIZE")


class UnreadBytesWatch:
    """Breaks the connections of which libzmq holds too much.

    Args:
        router: the engine, whose links count what was read of their connections.
        sockets: file descriptor, and which socket that is, of each link's connection, by route.
        unidentified: connections without a link.
    """

    def __init__(
        self,
        router: Router,
        sockets: dict[bytes, tuple[int, int]],
        unidentified: UnidentifiedConnections,
    ) -> None:
        self._router = router
        self._sockets = sockets
        self._unidentified = unidentified
        self._memory = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._size = self._size_before = self._resident()
        #: Bytes that had come and were not read, and that the engine held, when they were looked at last.
        self._unread_before = self._held_before = 0
        #: Growth since the connections have much under way that this does not explain.
        self._unexplained = 0
        self._explained_at = monotonic()
        #: Routes that are still to be looked at in this turn.
        self._unseen: Iterator[bytes] = iter(())
        self._next_unidentified = 0
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
            self._size_before = min(self._size_before, size)
            if size - self._size >= _GROWTH:
                self.look(size)
            else:
                self._cut_unidentified(_UNIDENTIFIED_AT_ONCE)
        except Exception:
            self._router.faults.report(monotonic())

    def look(self, size_bytes: int = 0) -> None:
        """Look at the connections without a link, and at the next of those that have one.

        Args:
            size_bytes: of this process, taken as usual once all were looked at.
        """
        self._next_unidentified = 0
        waiting: list[tuple[int, bytes | int]] = list(self._cut_unidentified(len(self._unidentified)))
        routes = list(islice(self._unseen, _AT_ONCE))
        if not routes:
            self._unseen = iter(list(self._sockets))
            routes = list(islice(self._unseen, _AT_ONCE))
        held: list[tuple[int, bytes]] = []
        for route in routes:
            link = self._router.links.routes.get(route)
            if link is not None and (unread := self._unread(route, link)):
                held.append((unread, route))
        waiting += held
        if size_bytes:
            growth, self._size_before = size_bytes - self._size_before, size_bytes
            self._cut_amplified(monotonic(), growth, waiting)
        self._cut_links([(unread, route) for unread, route in held if route in self._sockets])
        if len(routes) < _AT_ONCE:
            self._size = size_bytes

    def _cut_unidentified(self, most: int) -> list[tuple[int, int]]:
        """Cut those of the next ``most`` that have sent too much; returns what came on the others, and which."""
        left: list[tuple[int, int]] = []
        by_fd = self._unidentified.by_fd
        for fd in list(islice(by_fd, self._next_unidentified, self._next_unidentified + most)):
            before = by_fd[fd].received
            received = received_bytes(fd)
            if received is None:
                continue
            if received - before > UNIDENTIFIED_BYTES:
                self._unidentified.cut(fd, "cut: too much before HELLO")
            else:
                left.append((max(0, received - before), fd))
        self._next_unidentified += most
        if self._next_unidentified >= len(self._unidentified):
            self._next_unidentified = 0
        return left

    def _cut_amplified(self, now: float, growth: int, waiting: list[tuple[int, bytes | int]]) -> None:
        """Cut those that have most under way if this process has grown by far more than that and what the engine holds.

        Args:
            growth: bytes since the connections were looked at last.
            waiting: unread bytes of each connection, with its route, or file descriptor where it has no link.
        """
        router, settings = self._router, self._router.settings
        unread, held = sum(size for size, _ in waiting), router.memory.accounted_bytes
        explained = max(0, unread - self._unread_before) + max(0, held - self._held_before)
        self._unread_before, self._held_before = unread, held
        forgiven, self._explained_at = int((now - self._explained_at) * _FORGIVEN), now
        if unread < _UNDER_WAY:
            self._unexplained = 0
            return
        self._unexplained = max(0, self._unexplained - forgiven + growth - 2 * explained)
        if self._unexplained <= max(settings.router_max_bytes // _UNEXPLAINED_PART, _UNEXPLAINED_BYTES):
            return
        waiting.sort(key=itemgetter(0), reverse=True)
        for size, which in waiting:
            if self._unexplained <= 0 or not size:
                break
            self._unexplained -= size * _AMPLIFIED
            self._unread_before -= size
            if isinstance(which, int):
                self._unidentified.cut(which, _AMPLIFIES)
            else:
                self._cut_amplifying_link(which, size)
        self._unexplained = 0

    def _cut_amplifying_link(self, route: bytes, unread: int) -> None:
        links = self._router.links
        link = links.routes.get(route)
        if link is not None:
            text = f"its connection was broken: {unread} bytes came that are not read yet, and take far more memory"
            self._router.actions.append(LogEvent("offence", f"{link.identity}: {text}", link.identity))
        links.counters[_AMPLIFIES] += 1
        break_connection(*self._sockets[route])
        # It is not to be cut again before it is known to be broken.
        del self._sockets[route]

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
            break_connection(fd, known)

    def close(self) -> None:
        """Stop."""
        self._timer.stop()
        self._timer.close()
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1
