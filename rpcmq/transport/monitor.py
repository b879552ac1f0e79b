"""The lock around the engines of a process whose clients live in a plain thread.

Whoever uses the engines holds it, the loop's thread among them, and lets go of it while it waits or runs code of the
application. So the engines see what they see in gevent: one caller at a time, from one wait to the next.
"""

from __future__ import annotations

import _thread
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from rpcmq.transport.originals import allocate_lock, get_ident, new_rlock

__all__ = ["GreenMonitor", "Monitor", "NativeMonitor"]

T = TypeVar("T")

#: Longest wait of a green thread for one of another thread of the operating system before it looks again (seconds).
_LOOK_AGAIN = 0.01


class Monitor(Protocol):
    """A lock that knows its holder, and is never taken twice.

    Attributes:
        lock: a context manager that takes it.
        is_held: whether the caller holds it.
    """

    lock: AbstractContextManager[Any]
    is_held: Callable[[], bool]

    def outside(self, function: Callable[..., T], *args: Any) -> T:
        """Call ``function`` without the lock, which the caller holds, and holds again afterwards."""

    def inside_if_free(self, function: Callable[..., object], *args: Any) -> bool:
        """Call ``function`` with the lock if nobody holds it; return whether nobody did."""


class NativeMonitor(Monitor):
    """For threads of the operating system."""

    __slots__ = ("_release", "_take", "_take_back", "is_held", "lock")

    def __init__(self) -> None:
        # The functions of C: each use of the engines calls them.
        self.lock = lock = new_rlock()
        self.is_held = lock._is_owned
        self._take: Callable[[bool], bool] = lock.acquire
        self._release: Callable[[], None] = lock.release
        self._take_back: Callable[[tuple[int, int]], None] = lock._acquire_restore

    def outside(self, function: Callable[..., T], *args: Any) -> T:
        """See :meth:`Monitor.outside`."""
        holder = 1, get_ident()
        try:
            # In here: a signal that comes before `function` is called must find the lock taken back, too.
            self._release()
            return function(*args)
        finally:
            # One function of C, however many signals come; and not `acquire`, which they can interrupt.
            self._take_back(holder)

    def inside_if_free(self, function: Callable[..., object], *args: Any) -> bool:
        """See :meth:`Monitor.inside_if_free`."""
        try:
            try:
                # In here: a signal can come when it is taken.
                if not self._take(False):
                    return False
                function(*args)
                return True
            finally:
                self._let_go()
        except BaseException:
            self._let_go()  # the signal came while it was being released
            raise

    def _let_go(self) -> None:
        if self.is_held():
            self._release()


class GreenMonitor(Monitor):
    """For the green threads of a patched program, of which many are one thread of the operating system.

    None of them may block that while another of them holds the lock, which could not go on; such a one looks again and
    again. Any other holder is another thread of the operating system, and does not hold it for long.
    """

    __slots__ = ("_holder", "_holding_thread", "_lock", "is_held", "lock")

    def __init__(self) -> None:
        self._lock = allocate_lock()
        #: The green thread that holds it, and its thread of the operating system.
        self._holder = self._holding_thread = 0
        self.lock = self
        self.is_held = self._is_held

    def _is_held(self) -> bool:
        return self._holder == _thread.get_ident()

    def __enter__(self) -> object:
        lock, here = self._lock, get_ident()
        while not lock.acquire(False):
            if self._holding_thread == here:
                time.sleep(0)
            elif lock.acquire(True, _LOOK_AGAIN):
                break
        self._holding_thread = here
        self._holder = _thread.get_ident()
        return self

    def __exit__(self, *error: object) -> None:
        self._holder = self._holding_thread = 0
        self._lock.release()

    def outside(self, function: Callable[..., T], *args: Any) -> T:
        """See :meth:`Monitor.outside`."""
        self.__exit__()
        try:
            return function(*args)
        finally:
            self.__enter__()

    def inside_if_free(self, function: Callable[..., object], *args: Any) -> bool:
        """See :meth:`Monitor.inside_if_free`: to wait for it lets the others run."""
        with self:
            function(*args)
        return True
