"""A thread whose call is the only one of its process waits for the answer at the socket itself.

Otherwise the loop's thread has to be woken to send the request, and the caller again when the answer is there: two
changes of threads, which take as long as a third of such a call.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from math import ceil, inf
from time import monotonic

from rpcmq.core.process.call import Call
from rpcmq.errors import UsageError
from rpcmq.transport.connection import Connection
from rpcmq.transport.forks import OF_THE_PARENT
from rpcmq.transport.monitor import Monitor
from rpcmq.transport.originals import new_poll
from rpcmq.transport.thread_loop import Callback, ThreadLoop
from rpcmq.transport.thread_signals import may_be_interrupted, uninterrupted

__all__ = ["LoneCaller"]

_READABLE = 1
#: Longest time (seconds) for which the loop's thread does not look at the socket; at most twice that.
_LONGEST = 0.5
#: Longest poll (milliseconds); one that is over earlier than the caller's time goes on elsewhere.
_LONGEST_POLL = 60_000


class LoneCaller:
    """The place of the one thread that waits at the socket of ``connection``. Used by whoever holds ``monitor``."""

    __slots__ = (
        "_bell", "_call", "_connection", "_fd", "_is_in_use", "_is_polling", "_loop", "_monitor", "_seen", "_timer",
        "_wait",
    )  # fmt: skip

    def __init__(self, monitor: Monitor, loop: ThreadLoop, connection: Connection) -> None:
        self._monitor = monitor
        self._loop = loop
        self._connection = connection
        self._bell = -1
        #: The socket, and the function that waits for it and the bell.
        self._fd = -1
        self._wait: Callable[[float | None], list[tuple[int, int]]] = lambda milliseconds: []
        #: The loop's thread does not look at the socket while there is one.
        self._call: Call | None = None
        self._is_polling = False
        #: Whether a thread, even one that was dismissed, has not come back from the wait. It would miss its bell if
        #: another one waited here and read it, and neither may use a poll object that the other uses.
        self._is_in_use = False
        #: The one that was here when the timer was due last.
        self._seen: Call | None = None
        self._timer: Callback | None = None

    @property
    def is_free(self) -> bool:
        """Whether no thread waits here."""
        return self._call is None and not self._is_in_use

    def wait(self, call: Call, until: float = inf) -> None:
        """Wait until ``call`` is done, or somebody else has to look at the socket, but not beyond ``until``.

        Args:
            until: monotonic seconds.

        Raises:
            UsageError: this is the child of a fork, and the call its parent's.
        """
        connection, fd = self._connection, self._connection.fd
        if fd is None or not self.is_free:
            return
        if fd != self._fd:
            self._watch(fd)
        try:
            self._call, call.waiter = call, self._resume
            self._loop.mute(fd)
            while call.answer is None and call.error is None and self._call is call and connection.fd == fd:
                try:
                    self._is_in_use = self._is_polling = True
                    readable = self._monitor.outside(self._wait, _milliseconds(until))
                finally:
                    self._is_in_use = self._is_polling = False
                if connection.abandoned:
                    raise UsageError(OF_THE_PARENT)
                if self._call is not call or not readable:
                    break
                if readable[-1][0] == self._bell or readable[0][0] == self._bell:
                    os.eventfd_read(self._bell)
                if may_be_interrupted():
                    break  # there are more threads since
                uninterrupted(connection.wake, call)
                if self._loop.wakes.waiting:
                    self._loop.wakes.wake_all()
        finally:
            call.waiter = None
            if self._call is call and not connection.abandoned:
                self._leave()

    def dismiss(self) -> None:
        """Have the loop's thread look at the socket again; who waits here goes on elsewhere."""
        # In the child of a fork it is the parent's.
        if self._call is not None and not self._connection.abandoned:
            self._leave()
            self._resume()

    def _end_long_wait(self) -> None:
        # Exceptions of two handlers of signals, one after the other, can keep a thread from leaving.
        if self._call is not None and self._call is self._seen:
            self.dismiss()
        self._seen = self._call

    def _leave(self) -> None:
        # In this order: a signal's handler can raise in between, and whoever comes next dismisses who is here.
        self._loop.unmute(self._fd)
        self._call = None

    def _resume(self) -> None:
        if self._is_polling:
            self._is_polling = False
            os.eventfd_write(self._bell, 1)

    def _watch(self, fd: int) -> None:
        if self._timer is None:
            self._bell = self._loop.new_bell()
            self._timer = self._loop.call_at(monotonic() + _LONGEST, _LONGEST, self._end_long_wait)
        poll = new_poll()
        poll.register(self._bell, _READABLE)
        poll.register(fd, _READABLE)
        self._wait = poll.poll
        self._fd = fd

    def close(self) -> None:
        """Release what it takes."""
        self.dismiss()
        if self._timer is not None and not self._connection.abandoned:
            self._timer.stop()
            self._loop.close_bell(self._bell)
            self._timer, self._bell, self._fd = None, -1, -1


def _milliseconds(until: float) -> int | None:
    """Return how long to poll for."""
    return None if until == inf else min(_LONGEST_POLL, max(0, ceil((until - monotonic()) * 1e3)))
