"""Connections that have not said HELLO, bounded in number and time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from rpcmq.transport.owned_sockets import break_connection, socket_inode

__all__ = ["UnidentifiedConnection", "UnidentifiedConnections"]


class UnidentifiedConnection:
    """A connection that has not said HELLO, or has left its link."""

    __slots__ = ("inode", "received", "since")

    def __init__(self, inode: int, since: float, received: int) -> None:
        #: The identity of the socket: file descriptors are used again.
        self.inode = inode
        self.since = since
        #: Bytes that had come on it then.
        self.received = received


class UnidentifiedConnections:
    """Connections by file descriptor, the oldest first.

    Args:
        most: so many at a time; the oldest is cut for one more.
        seconds: what each may take.
        count: called with the reason for each that is cut.

    Attributes:
        by_fd: each of them.
    """

    def __init__(self, most: int, seconds: float, count: Callable[[str], None]) -> None:
        self.most = most
        self._seconds = seconds
        self._count = count
        self.by_fd: OrderedDict[int, UnidentifiedConnection] = OrderedDict()

    def __len__(self) -> int:
        return len(self.by_fd)

    def admit(self, now: float, fd: int, received_bytes: int = 0) -> None:
        """Add ``fd``, which was accepted, or whose link has ended after ``received_bytes``."""
        inode = socket_inode(fd)
        if inode is None:
            return
        self.by_fd.pop(fd, None)
        self.by_fd[fd] = UnidentifiedConnection(inode, now, received_bytes)
        while len(self.by_fd) > self.most:
            self.cut(next(iter(self.by_fd)), "cut: too many handshakes")

    def forget(self, fd: int, inode: int | None = None) -> bool:
        """Remove ``fd``, if it still is the socket ``inode`` where that is given; return whether it was listed."""
        known = self.by_fd.get(fd)
        if known is None or (inode is not None and known.inode != inode):
            return False
        del self.by_fd[fd]
        return True

    def cut(self, fd: int, reason: str) -> None:
        """Break the connection ``fd``, one of these, and count the ``reason``."""
        connection = self.by_fd.pop(fd)
        self._count(reason)
        break_connection(fd, connection.inode)

    def close_expired(self, now: float) -> None:
        """Break connections whose time is over."""
        while self.by_fd:
            fd, connection = next(iter(self.by_fd.items()))
            if now < connection.since + self._seconds:
                break
            self.cut(fd, "cut: no HELLO in time")

    def next_deadline(self) -> float | None:
        """The time of the next :meth:`close_expired` (monotonic seconds); None if there are none."""
        return next(iter(self.by_fd.values())).since + self._seconds if self.by_fd else None
