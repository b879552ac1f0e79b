"""Calls from the loop's thread into the thread of a program that gevent or eventlet has patched.

There the threads of the program are green, and only their own thread of the operating system may resume them. One of
them reads a doorbell, which waits as the program's sockets do, and does what was asked for.
"""

from __future__ import annotations

import _socket
import os
import socket
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable

from rpcmq.transport.originals import get_ident

__all__ = ["GreenPorter"]


class GreenPorter:
    """Calls functions in a green thread of the program; to be made in a green thread."""

    __slots__ = ("_asked", "_bell", "_rung", "_silent", "_socket", "_thread")

    def __init__(self) -> None:
        self._thread = get_ident()
        self._asked: deque[Callable[[], object]] = deque()
        self._rung = False
        #: In the child of a fork: the other end of what the copy of the green thread waits for.
        self._silent: _socket.socket | None = None
        self._socket, bell = socket.socketpair()
        # The type of C, which neither has patched: it is rung from a thread in which nothing is green.
        self._bell = _socket.socket(fileno=os.dup(bell.fileno()))
        self._bell.setblocking(False)
        bell.close()
        threading.Thread(target=self._run, name="rpcmq porter", daemon=True).start()

    @property
    def is_here(self) -> bool:
        """Whether the caller is in its thread of the operating system, whose green threads it can resume."""
        return self._thread == get_ident()

    def call(self, function: Callable[[], object]) -> None:
        """Call ``function``, which must not wait, soon. From any thread."""
        self._asked.append(function)
        if not self._rung:
            self._rung = True
            try:
                self._bell.send(b"!")
            except BlockingIOError:
                pass  # it has been rung often enough

    def forget(self) -> None:
        """In the child of a fork: have its copy of the green thread wait for ever: it would take the parent's."""
        here, self._silent = _socket.socketpair()
        os.dup2(here.fileno(), self._socket.fileno())
        here.close()

    def _run(self) -> None:
        while self._socket.recv(4096):
            self._rung = False
            while self._asked:
                try:
                    self._asked.popleft()()
                except Exception:
                    if sys.stderr is not None:
                        traceback.print_exc()
