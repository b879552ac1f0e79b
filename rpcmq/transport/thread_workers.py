"""Threads that run handlers, one after the other; each goes on with the next one while there is one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Generic, TypeVar

from rpcmq.transport.thread_loop import print_failure
from rpcmq.transport.thread_parking import Parking

__all__ = ["ThreadWorkers"]

T = TypeVar("T")

#: Seconds after which a thread that has nothing to do ends.
_IDLE = 30.0


class ThreadWorkers(Generic[T]):
    """Runs ``handle(item)`` in one of at most ``most`` threads, which holds the monitor but where it waits.

    While items wait, one thread is on its way to them, and before it runs the handler it sends for another one. So a
    handler that waits holds up nobody, and one that does not is followed by the next in the same thread: to wake
    another one for each costs more than a short handler.

    Args:
        spawn: runs a function in a thread of its own, which holds the monitor.
        new_parking: makes a place to wait.
    """

    def __init__(
        self,
        handle: Callable[[T], None],
        most: int,
        spawn: Callable[..., None],
        new_parking: Callable[[], Parking],
    ) -> None:
        self._handle = handle
        self._most = most
        self._spawn = spawn
        self._new_parking = new_parking
        self._idle: list[Parking] = []
        self._waiting: deque[T] = deque()
        self._count = 0
        #: Whether a thread was woken, or begun, that has not looked for an item yet.
        self._is_one_coming = False
        self._closed = False

    def start(self, item: T) -> None:
        """See :meth:`rpcmq.transport.shell.Workers.start`."""
        self._waiting.append(item)
        try:
            self._send_for_one()
        except RuntimeError:
            # The system has no thread left. Those that there are go on with what waits.
            if self._count == 0:
                self._waiting.pop()
                raise

    def _send_for_one(self) -> None:
        if self._is_one_coming:
            return
        if self._idle:
            self._is_one_coming = True
            self._idle.pop().resume()
        elif self._count < self._most:
            self._spawn(self._work)
            self._is_one_coming = True
            self._count += 1

    def close(self) -> None:
        """End the threads that have nothing to do, and each of the others once it has nothing to do."""
        self._closed = True
        idle, self._idle = self._idle, []
        for parking in idle:
            parking.resume()

    def _work(self) -> None:
        try:
            self._is_one_coming = False
            parking = self._new_parking()
            while self._waiting or self._has_come_again(parking):
                if self._waiting:
                    self._run(self._waiting.popleft())
        finally:
            self._count -= 1

    def _run(self, item: T) -> None:
        if self._waiting:
            try:
                self._send_for_one()
            except RuntimeError:
                pass  # no thread is left: this one, or another one, goes on with what waits
        try:
            Context().run(self._handle, item)
        except BaseException as error:
            print_failure(self._handle, error)

    def _has_come_again(self, parking: Parking) -> bool:
        """Wait until somebody sends for this thread; return whether it is to go on."""
        if self._closed:
            return False
        self._idle.append(parking)
        parking.park(_IDLE)
        if parking in self._idle:
            self._idle.remove(parking)
            return False
        self._is_one_coming = False
        return True
