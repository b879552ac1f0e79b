"""Wakes threads whose answers are there, one after the other.

A thread that is woken while another one computes waits a second time: for the lock of Python's interpreter. That costs
about as much CPU as the rest of its call. So only the first ones are woken by the loop's thread. Each of them wakes
another one just before it waits for its next answer. Where they do something else first, all are woken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from operator import call

from rpcmq.transport.handoff import HandoffLock

__all__ = ["PATIENCE", "WakeQueue"]

#: Number of threads that are woken at once.
_FIRST_COUNT = 2
#: Number of threads from which on only one is, if each wakes another in one step: a second one would get in its way.
_MANY = inf if HandoffLock is None else 16
#: Longest wait for a thread that was woken to wake another one (seconds).
PATIENCE = 0.001
#: Time for which all are woken at once after one has not woken another (seconds).
_WAKE_ALL_SECONDS = 0.02


class WakeQueue:
    """Functions that wake a thread each, and must not raise or wait.

    Attributes:
        waiting: those to be called.
    """

    __slots__ = ("_all_until", "_first", "_since", "waiting", "wake_next")

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], object]] = deque()
        #: Calls one of them, in any thread. IndexError: there is none; RuntimeError: its thread was woken already.
        #: No step of Python lies between taking it out and calling it, after which a signal's handler could raise.
        self.wake_next: Callable[[], object] = map(call, iter(self.waiting.popleft, None)).__next__
        self._first: Callable[[], object] | None = None
        self._since = 0.0
        self._all_until = 0.0

    def wake_some(self, now: float) -> bool:
        """Wake the first ones, or all where the last ones have woken nobody; return whether others are left."""
        waiting = self.waiting
        if self._head() is self._first and now - self._since > PATIENCE:
            self._all_until = now + _WAKE_ALL_SECONDS
        count = len(waiting)
        self._wake(count if now <= self._all_until else _FIRST_COUNT if count < _MANY else 1)
        first = self._head()
        if first is not self._first:
            self._first, self._since = first, now
        return first is not None

    def wake_all(self) -> None:
        """Wake all."""
        self._wake(len(self.waiting))

    def _wake(self, most: int) -> None:
        for _ in range(most):
            try:
                self.wake_next()
            except IndexError:
                return
            except RuntimeError:
                pass  # that was woken already

    def _head(self) -> Callable[[], object] | None:
        try:
            return self.waiting[0]
        except IndexError:
            return None
