"""Counts failed handshakes of a ROUTER socket's connections, as far as libzmq's events tell them from other ends."""

from __future__ import annotations

from collections import Counter

import zmq

__all__ = ["HandshakeCounts"]

_FAILED: dict[int, str] = {
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "handshake failed: closed",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "handshake failed: key",
}


class HandshakeCounts:
    """Counts failures, by reason, into ``counters``."""

    def __init__(self, counters: Counter[str]) -> None:
        self._counters = counters
        #: Connections that have said HELLO, by file descriptor.
        self.greeted: set[int] = set()
        #: Number of successful handshakes on connections without HELLO: libzmq does not say which.
        self._succeeded = 0
        #: Whether the reason of the next failure was counted already.
        self._explained = False

    def has_greeted(self, fd: int) -> None:
        """The connection ``fd`` has said HELLO."""
        if fd not in self.greeted:
            self.greeted.add(fd)
            self._succeeded = max(0, self._succeeded - 1)

    def event(self, event: int, fd: int) -> None:
        """Handle an event of the socket's monitor: a handshake that succeeded or failed, or the end of ``fd``."""
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._succeeded += 1
        elif (failed := _FAILED.get(event)) is not None:
            self._counters[failed] += 1
            self._explained = True
        elif event == zmq.EVENT_DISCONNECTED:
            self._disconnected(fd)

    def _disconnected(self, fd: int) -> None:
        if fd in self.greeted:
            self.greeted.discard(fd)
        elif self._explained:
            pass
        elif self._succeeded:
            self._succeeded -= 1
        else:
            self._counters["handshake failed: protocol"] += 1
        self._explained = False
