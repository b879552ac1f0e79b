"""Connections in the handshake phase, bounded in number and time."""

from __future__ import annotations

import os
import socket as sockets
from collections import OrderedDict
from collections.abc import Callable

__all__ = ["Strangers", "break_connection", "socket_of"]


def socket_of(fd: int) -> int | None:
    """Return the inode of the socket ``fd``, which tells it from earlier and later ones; None if there is none."""
    try:
        return os.fstat(fd).st_ino
    except OSError:
        return None


def break_connection(fd: int, socket: int) -> None:
    """Shut down the connection ``fd`` if it still is ``socket``: libzmq, which owns it, then closes it."""
    try:
        ours = os.dup(fd)
    except OSError:
        return
    with sockets.socket(fileno=ours) as broken:
        if os.fstat(ours).st_ino == socket:
            try:
                broken.shutdown(sockets.SHUT_RDWR)
            except OSError:
                pass  # it is broken already


class Strangers:
    """Connections by file descriptor, the oldest first.

    Args:
        most: so many at a time; the oldest is cut for one more.
        seconds: what each may take.
        count: called with the reason for each that is cut.
    """

    def __init__(self, most: int, seconds: float, count: Callable[[str], None]) -> None:
        self.most = most
        self._seconds = seconds
        self._count = count
        self._since: OrderedDict[int, tuple[int, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._since)

    def admit(self, now: float, fd: int) -> None:
        """Add ``fd``, which was accepted, or whose link has ended."""
        socket = socket_of(fd)
        if socket is None:
            return
        self._since.pop(fd, None)
        self._since[fd] = socket, now
        while len(self._since) > self.most:
            oldest, (socket, _) = self._since.popitem(last=False)
            self._count("cut: too many handshakes")
            break_connection(oldest, socket)

    def forget(self, fd: int) -> bool:
        """Remove ``fd``; return whether it was listed."""
        return self._since.pop(fd, None) is not None

    def cut_late(self, now: float) -> None:
        """Break connections whose time is over."""
        while self._since:
            fd, (socket, since) = next(iter(self._since.items()))
            if now < since + self._seconds:
                break
            del self._since[fd]
            self._count("cut: no HELLO in time")
            break_connection(fd, socket)

    def next_deadline(self) -> float | None:
        """The time of the next :meth:`cut_late` (monotonic seconds); None if there are no strangers."""
        return next(iter(self._since.values()))[1] + self._seconds if self._since else None
