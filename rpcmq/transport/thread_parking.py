"""Waits of threads for the loop, with the engines in hand: each thread of control parks on a lock of its own.

How a thread waits for the answer to a call is in :mod:`rpcmq.client.thread_process`.
"""

from __future__ import annotations

import _thread
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from rpcmq.errors import UsageError
from rpcmq.transport.current_hub import new_lock
from rpcmq.transport.forks import OF_THE_PARENT
from rpcmq.transport.green_porter import GreenPorter
from rpcmq.transport.monitor import Monitor

__all__ = ["Event", "GreenParking", "Lock", "Parking", "Resumable"]


class Resumable(Protocol):
    """Somebody who waits."""

    def resume(self) -> object:
        """Have it go on. Called by whoever holds the monitor."""


class Parking:
    """One thread's place to wait. All of it is used by whoever holds the monitor."""

    __slots__ = ("_lock", "_monitor", "_resumed")

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        # Held while nobody has resumed the thread.
        self._lock = lock = self._new_lock()
        lock.acquire()
        self._resumed = False

    def _new_lock(self) -> Any:
        return new_lock()

    def resume(self) -> None:
        """Have :meth:`park` return, or the next one."""
        if not self._resumed:
            self._resumed = True
            self._release()

    def _release(self) -> None:
        self._lock.release()

    def park(self, timeout: float | None = None) -> None:
        """Wait for :meth:`resume`, or until ``timeout`` (seconds) is over, without the monitor. Signals interrupt it.

        Raises:
            UsageError: this is the child of a fork, and the client its parent's.
        """
        monitor = self._monitor
        if not monitor.is_held():
            raise UsageError(OF_THE_PARENT)
        lock = self._lock
        if timeout is None:
            monitor.outside(lock.acquire)
        elif not monitor.outside(lock.acquire, True, max(0.0, timeout)) and self._resumed:
            monitor.outside(lock.acquire)  # resumed just after the time was over
        self._resumed = False


class GreenParking(Parking):
    """One green thread's place to wait, in a patched program."""

    __slots__ = ("_porter",)

    def __init__(self, monitor: Monitor, porter: GreenPorter) -> None:
        self._porter = porter
        super().__init__(monitor)

    def _new_lock(self) -> Any:
        # As the program has it: green.
        return _thread.allocate_lock()

    def _release(self) -> None:
        self._porter.call(self._lock.release)


class Event:
    """A flag that threads wait for. To be used by whoever holds the monitor."""

    __slots__ = ("_is_set", "_new_parking", "_waiting")

    def __init__(self, new_parking: Callable[[], Parking]) -> None:
        self._new_parking = new_parking
        self._is_set = False
        self._waiting: list[Resumable] = []

    def is_set(self) -> bool:
        """See :class:`rpcmq.transport.shell.WaitableEvent`."""
        return self._is_set

    def set(self) -> None:
        """See :class:`rpcmq.transport.shell.WaitableEvent`."""
        self._is_set = True
        waiting, self._waiting = self._waiting, []
        for parking in waiting:
            parking.resume()

    def clear(self) -> None:
        """See :class:`rpcmq.transport.shell.WaitableEvent`."""
        self._is_set = False

    def resume_when_set(self, waiting: Resumable) -> None:
        """Resume ``waiting`` once the flag is set, or at once."""
        if self._is_set:
            waiting.resume()
        else:
            self._waiting.append(waiting)

    def forget(self, waiting: Resumable) -> None:
        """Do not resume ``waiting`` any more."""
        if waiting in self._waiting:
            self._waiting.remove(waiting)

    def wait(self, timeout: float | None = None) -> bool:
        """See :class:`rpcmq.transport.shell.WaitableEvent`."""
        if self._is_set:
            return True
        parking = self._new_parking()
        self._waiting.append(parking)
        try:
            parking.park(timeout)
        finally:
            was_set = parking not in self._waiting
            if not was_set:
                self._waiting.remove(parking)
        # Also where somebody has taken the flag back since.
        return was_set or self._is_set


class Lock:
    """A lock that its holder keeps across waits. To be used by whoever holds the monitor."""

    __slots__ = ("_is_held", "_new_parking", "_waiting")

    def __init__(self, new_parking: Callable[[], Parking]) -> None:
        self._new_parking = new_parking
        self._is_held = False
        self._waiting: deque[Parking] = deque()

    def __enter__(self) -> None:
        parking: Parking | None = None
        while self._is_held:
            parking = parking or self._new_parking()
            self._waiting.append(parking)
            try:
                parking.park()
            finally:
                if parking in self._waiting:
                    self._waiting.remove(parking)
        self._is_held = True

    def __exit__(self, *error: object) -> None:
        self._is_held = False
        if self._waiting:
            self._waiting.popleft().resume()
