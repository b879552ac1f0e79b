"""Sockets that libzmq owns, by file descriptor: which one it is, how much came on it, how to break its connection."""

from __future__ import annotations

import _socket
import os
import socket
from contextlib import closing
from struct import Struct

__all__ = ["break_connection", "received_bytes", "socket_inode"]

#: ``tcpi_bytes_received`` in Linux's ``struct tcp_info``.
_BYTES_RECEIVED = Struct("=128xQ")


def socket_inode(fd: int) -> int | None:
    """Return the inode of the socket ``fd``, which tells it from earlier and later ones; None if there is none."""
    try:
        return os.fstat(fd).st_ino
    except OSError:
        return None


def break_connection(fd: int, inode: int) -> None:
    """Shut down the connection ``fd`` if it still is the socket ``inode``: libzmq, which owns it, then closes it."""
    try:
        ours = os.dup(fd)
    except OSError:
        return
    with _unpatched(ours) as broken:
        if os.fstat(ours).st_ino == inode:
            try:
                broken.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it is broken already


def received_bytes(fd: int) -> int | None:
    """Bytes that have come on the TCP connection ``fd`` since it stands; None: it is none, or not to be known."""
    try:
        with _unpatched(os.dup(fd)) as own:
            if own.family not in (socket.AF_INET, socket.AF_INET6):
                return None
            info = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_RECEIVED.size)
    except OSError:
        return None
    if len(info) < _BYTES_RECEIVED.size:
        return None
    (received,) = _BYTES_RECEIVED.unpack(info)
    return int(received)


def _unpatched(fd: int) -> closing[_socket.socket]:
    """Return the socket of C: in a patched process, too, nothing waits here, as nothing is received or sent."""
    return closing(_socket.socket(fileno=fd))
