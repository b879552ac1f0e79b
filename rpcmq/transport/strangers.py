"""Connections that have not said who they are: bounded in number and time, so that nobody fills a process with them."""

from __future__ import annotations

import os
import socket as sockets
from collections import OrderedDict
from collections.abc import Callable

__all__ = ["Strangers", "break_connection", "socket_of"]


def socket_of(fd: int) -> int | None:
    """What tells the socket that is ``fd`` now from those that were, or will be; None: there is none."""
    try:
        return os.fstat(fd).st_ino
    except OSError:
        return None


def break_connection(fd: int, socket: int) -> None:
    """Break the connection ``socket``, if ``fd`` still is it: libzmq owns and closes it, and finds it broken."""
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
        """``fd`` was accepted, or has left its link."""
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
        """``fd`` is a stranger no more, or gone; whether it was one."""
        return self._since.pop(fd, None) is not None

    def cut_late(self, now: float) -> None:
        """Cut those whose time is over."""
        while self._since:
            fd, (socket, since) = next(iter(self._since.items()))
            if now < since + self._seconds:
                break
            del self._since[fd]
            self._count("cut: no HELLO in time")
            break_connection(fd, socket)

    def next_deadline(self) -> float | None:
        """When :meth:`cut_late` wants to be called; None: there are none."""
        return next(iter(self._since.values()))[1] + self._seconds if self._since else None
