"""Semaphores."""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Self

from gevent import get_hub
from gevent.hub import Waiter

from eventlet._waiting import wait_while

__all__ = ["BoundedSemaphore", "CappedSemaphore", "Semaphore"]


class Semaphore:
    """A counter that ``acquire`` lowers, once it is above zero, and ``release`` raises."""

    def __init__(self, value: int = 1) -> None:
        if value < 0:
            raise ValueError("Semaphore must be initialized with a positive number")
        self.counter = value
        self._waiters: deque[Waiter[None]] = deque()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x} c={self.counter} _w[{len(self._waiters)}]>"

    @property
    def balance(self) -> int:
        """The counter, less the number of those who wait."""
        return self.counter - len(self._waiters)

    def locked(self) -> bool:
        """Tell whether ``acquire`` would wait."""
        return self.counter <= 0

    def bounded(self) -> bool:
        """Tell whether ``release`` may wait: never."""
        return False

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """Lower the counter; False if it could not be, at once or within ``timeout`` seconds."""
        if self.counter <= 0:
            if not blocking:
                return False
            # Another may have been faster than the one that was woken, which then stays first in line.
            if not wait_while(lambda: self.counter <= 0, self._waiters, timeout):
                return False
        self.counter -= 1
        return True

    def release(self, blocking: bool = True) -> bool:
        """Raise the counter and wake, soon, who waits first."""
        self.counter += 1
        self._wake_soon()
        return True

    def _wake_soon(self) -> None:
        if self._waiters and self.counter > 0:
            get_hub().loop.run_callback(self._wake)

    def _wake(self) -> None:
        while self._waiters and self.counter > 0:
            self._waiters[0].switch(None)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.release()


class BoundedSemaphore(Semaphore):
    """A semaphore that can't be released more often than it was acquired."""

    def __init__(self, value: int = 1) -> None:
        super().__init__(value)
        self.original_counter = value

    def release(self, blocking: bool = True) -> bool:
        """Raise the counter. Raises ValueError beyond its first value."""
        if self.counter >= self.original_counter:
            raise ValueError("Semaphore released too many times")
        return super().release(blocking)


class CappedSemaphore:
    """A semaphore whose ``release`` waits while the counter is at ``limit``."""

    def __init__(self, count: int, limit: int) -> None:
        if count < 0:
            raise ValueError("CappedSemaphore must be initialized with a positive number")
        if count > limit:
            raise ValueError("count cannot be more than limit")
        self.lower_bound = Semaphore(count)
        self.upper_bound = Semaphore(limit - count)

    @property
    def balance(self) -> int:
        """The counter, less those who wait to acquire, plus those who wait to release."""
        return self.lower_bound.balance - min(self.upper_bound.balance, 0)

    def locked(self) -> bool:
        """Tell whether ``acquire`` would wait."""
        return self.lower_bound.locked()

    def bounded(self) -> bool:
        """Tell whether ``release`` would wait."""
        return self.upper_bound.locked()

    def acquire(self, blocking: bool = True) -> bool:
        """Lower the counter; False if it could not be lowered at once and ``blocking`` is false."""
        if not self.lower_bound.acquire(blocking):
            return False
        self.upper_bound.release()
        return True

    def release(self, blocking: bool = True) -> bool:
        """Raise the counter; False if it could not be raised at once and ``blocking`` is false."""
        if not self.upper_bound.acquire(blocking):
            return False
        self.lower_bound.release()
        return True

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.release()
