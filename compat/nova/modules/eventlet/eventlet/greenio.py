"""Cooperative sockets and pipes."""

from __future__ import annotations

import os
from typing import Any

from gevent import socket
from gevent.fileobject import FileObject

__all__ = ["GreenPipe", "GreenSocket", "shutdown_safe"]


class GreenSocket(socket.socket):
    """A cooperative socket: a new one, of a family and a type, or another one made so."""

    def __init__(self, family_or_realsock: Any = socket.AF_INET, *args: Any, **kwargs: Any) -> None:
        if isinstance(family_or_realsock, int):
            super().__init__(family_or_realsock, *args, **kwargs)
            return
        real = family_or_realsock
        timeout = real.gettimeout()
        super().__init__(real.family, real.type, real.proto, fileno=real.detach())
        self.settimeout(timeout)


def GreenPipe(f: Any, mode: str = "r", bufsize: int = -1) -> Any:
    """Make a file, a file descriptor or a path cooperative; gives a file object, which owns it from now on.

    Text if the mode says so, as in Python 3; a ``bufsize`` of 0 of text is taken as "each line".
    """
    if not isinstance(f, int | str | bytes):
        # Two file objects must not both close one descriptor.
        duplicate = os.dup(f.fileno())
        f.close()
        f = duplicate
    if bufsize == 0 and "b" not in mode:
        bufsize = 1
    return FileObject(f, mode, buffering=bufsize)


def shutdown_safe(sock: Any) -> None:
    """Shut a socket down both ways; one that is not connected is left as it is."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # not connected, or not any more
