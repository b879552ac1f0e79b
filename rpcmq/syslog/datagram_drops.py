"""Datagrams that the kernel had no room for, as Linux tells of them in ``/proc/net/udp``."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["drops_of"]

_TABLES = ("/proc/net/udp", "/proc/net/udp6")
#: Columns of a row (Linux, net/ipv4/udp.c).
_INODE, _DROPS = 9, -1


def drops_of(sock: Any) -> int:
    """Return how many datagrams the socket ``sock`` has lost in the kernel; 0 where that cannot be known."""
    try:
        inode = str(os.fstat(sock.fileno()).st_ino)
    except OSError:
        return 0  # it is closed
    for table in _TABLES:
        try:
            with open(table, encoding="ascii") as file:
                for row in file:
                    columns = row.split()
                    if columns[_INODE] == inode:
                        return int(columns[_DROPS])
        except OSError:
            continue  # no Linux, or no such protocol
    return 0
