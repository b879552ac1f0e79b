"""An event that is sent once, with a value or an exception, and waited for by any number of green threads."""

from __future__ import annotations

from typing import Any

from gevent import get_hub
from gevent.hub import Waiter
from greenlet import getcurrent

from eventlet._waiting import wait_while

__all__ = ["Event"]


class _NotUsed:
    """Stands for "nothing sent yet", as None is a result like any other."""

    def __repr__(self) -> str:
        return "NOT_USED"


NOT_USED = _NotUsed()


class Event:
    """A one-time event; ``reset`` makes a sent one fresh again."""

    def __init__(self) -> None:
        self._waiters: list[Waiter[None]] = []
        self._result: Any = NOT_USED
        self._exc: tuple[Any, ...] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x} result={self._result!r} waiters[{len(self._waiters)}]>"

    def reset(self) -> None:
        """Forget what was sent. Raises AssertionError if nothing was."""
        assert self._result is not NOT_USED, "Trying to re-reset() a fresh event."
        self._result = NOT_USED
        self._exc = None

    def ready(self) -> bool:
        """Tell whether something was sent; ``wait`` then returns at once."""
        return self._result is not NOT_USED

    def has_exception(self) -> bool:
        """Tell whether an exception was sent."""
        return self._exc is not None

    def has_result(self) -> bool:
        """Tell whether a value was sent."""
        return self._result is not NOT_USED and self._exc is None

    def poll(self, notready: Any = None) -> Any:
        """Give (or raise) what was sent, or ``notready``; never waits."""
        return self.wait() if self.ready() else notready

    def poll_exception(self, notready: Any = None) -> Any:
        """Raise the exception that was sent, or give ``notready``."""
        return self.wait() if self.has_exception() else notready

    def poll_result(self, notready: Any = None) -> Any:
        """Give the value that was sent, or ``notready``."""
        return self.wait() if self.has_result() else notready

    def wait(self, timeout: float | None = None) -> Any:
        """Give what is sent, raise it if it is an exception; None after ``timeout`` seconds."""
        # A reset() between the sending and our turn leaves nothing to give; then wait for the next.
        if self._result is NOT_USED and not wait_while(lambda: self._result is NOT_USED, self._waiters, timeout):
            return None
        if self._exc is not None:
            getcurrent().throw(*self._exc)
        return self._result

    def send(self, result: Any = None, exc: Any = None) -> None:
        """Wake everybody who waits, soon, with a value or an exception. Raises AssertionError the second time."""
        assert self._result is NOT_USED, "Trying to re-send() an already-triggered event."
        self._result = result
        if exc is not None and not isinstance(exc, tuple):
            exc = (exc,)
        self._exc = exc
        if self._waiters:
            get_hub().loop.run_callback(self._wake)

    def send_exception(self, *args: Any) -> None:
        """Like ``send``, with what ``throw`` takes: an exception, its class, or the three of ``sys.exc_info()``."""
        self.send(None, args)

    def _wake(self) -> None:
        for waiter in tuple(self._waiters):
            if waiter in self._waiters:
                waiter.switch(None)
