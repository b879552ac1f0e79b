"""Functions that use the engines in place of the main thread, and end when that does not wait for them any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from rpcmq.transport.current_hub import new_lock
from rpcmq.transport.monitor import Monitor
from rpcmq.transport.originals import get_ident
from rpcmq.transport.thread_parking import Parking

__all__ = ["UndisturbedCall", "UndisturbedCalls", "Withdrawn"]

T = TypeVar("T")

#: Longest wait of the main thread for the end of a call that it has withdrawn (seconds).
_ENDS_WITHIN = 1.0


class Withdrawn(BaseException):
    """The main thread was interrupted, and does not wait for this call any more."""


class UndisturbedCalls:
    """The calls that go on in threads other than the main one, for that. Used by whoever holds ``monitor``."""

    __slots__ = ("_by_thread", "monitor")

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self._by_thread: dict[int, UndisturbedCall[Any]] = {}

    def new_parking(self) -> Parking:
        """A place where the current thread can wait."""
        call = self._by_thread.get(get_ident()) if self._by_thread else None
        return Parking(self.monitor) if call is None else _WithdrawableParking(self.monitor, call)

    def begin(self, call: UndisturbedCall[Any]) -> None:
        """The current thread begins with ``call``."""
        self._by_thread[get_ident()] = call

    def end(self) -> None:
        """The current thread has ended its call."""
        del self._by_thread[get_ident()]


class UndisturbedCall(Generic[T]):
    """One call of ``function``, with the monitor of ``calls``.

    Args:
        undo: called with what ``function`` has returned, if that is withdrawn.
        spawn: calls a function, which may wait, in a thread that holds the monitor.
        wake_loop: has the loop's thread look for :meth:`withdraw`.
    """

    __slots__ = (
        "_calls", "_function", "_has_begun", "_has_ended", "_is_over", "_is_withdrawn", "_result", "_spawn", "_undo",
        "_wake_loop", "is_to_raise", "parking",
    )  # fmt: skip

    def __init__(
        self,
        calls: UndisturbedCalls,
        function: Callable[[], T],
        undo: Callable[[T], object] | None,
        spawn: Callable[..., None],
        wake_loop: Callable[[], object],
    ) -> None:
        self._calls = calls
        self._function = function
        self._undo = undo
        self._spawn = spawn
        self._wake_loop = wake_loop
        # Held until the call was withdrawn, and nothing of it goes on.
        self._is_over = new_lock()
        self._is_over.acquire()
        self._result: list[T] = []
        self._has_begun = self._has_ended = self._is_withdrawn = False
        #: Whether its next wait, or the one that it is in, is to raise.
        self.is_to_raise = False
        self.parking: Parking | None = None

    def do(self) -> T:
        """Call the function.

        Raises:
            Withdrawn: nobody waits for it any more.
        """
        calls = self._calls
        with calls.monitor.lock:
            if self._is_withdrawn:
                raise Withdrawn
            self._has_begun = True
            calls.begin(self)
            try:
                self._result.append(self._function())
                return self._result[0]
            finally:
                self._end()

    def _end(self) -> None:
        self._calls.end()
        self._has_ended = True
        if self._is_withdrawn:
            self._undo_result()

    def withdraw(self) -> None:
        """Have the function end. In the loop's thread."""
        self._is_withdrawn = True
        if not self._has_begun:
            self._is_over.release()
        elif self._has_ended:
            self._spawn(self._undo_result)
        else:
            self.is_to_raise = True
            if self.parking is not None:
                self.parking.resume()

    def _undo_result(self) -> None:
        try:
            if self._result and self._undo is not None:
                self._undo(self._result.pop())
        finally:
            self._is_over.release()

    def await_end(self) -> None:
        """Wait until a call that was withdrawn has ended, and was undone; but not for long. In the main thread."""
        self._wake_loop()
        self._is_over.acquire(timeout=_ENDS_WITHIN)


class _WithdrawableParking(Parking):
    """The place where a thread waits during a call that may be withdrawn."""

    __slots__ = ("_call",)

    def __init__(self, monitor: Monitor, call: UndisturbedCall[Any]) -> None:
        self._call = call
        super().__init__(monitor)

    def park(self, timeout: float | None = None) -> None:
        """See :meth:`Parking.park`.

        Raises:
            Withdrawn: the call was withdrawn; once only, so that what ends it can wait.
        """
        self._check()
        self._call.parking = self
        try:
            super().park(timeout)
        finally:
            self._call.parking = None
        self._check()

    def _check(self) -> None:
        if self._call.is_to_raise:
            self._call.is_to_raise = False
            raise Withdrawn
