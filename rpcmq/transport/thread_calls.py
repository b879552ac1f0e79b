"""One function call on its way from an OS thread, or a greenlet of another hub, into a gevent hub and back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from time import monotonic
from typing import Any, Protocol

from gevent import getcurrent
from gevent._hub_local import get_hub_if_exists
from gevent.event import Event
from greenlet import GreenletExit, greenlet

from rpcmq.errors import UsageError
from rpcmq.transport.originals import allocate_lock

__all__ = ["ThreadCall", "Waiter", "run_within", "waiter"]


class Waiter(Protocol):
    """A place for one thread to wait for another."""

    def wait(self, seconds: float | None) -> bool:
        """Wait until :meth:`wake` was called since the last time; False if it was not within ``seconds``."""

    def wake(self) -> None:
        """From any thread."""

    def close(self) -> None:
        """Release the waiter."""


def waiter() -> Waiter:
    """Return what the current thread, or greenlet, can wait on.

    Raises:
        UsageError: it is the hub itself, which cannot wait.
    """
    hub = get_hub_if_exists()
    if hub is None:
        return _ThreadWaiter()
    if getcurrent() is hub:
        raise UsageError("the gevent hub cannot wait for a call; spawn a greenlet for it")
    return _GreenletWaiter(hub)


class _ThreadWaiter:
    """A waiter for an OS thread without a hub. Signals interrupt it."""

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._lock.acquire()

    def wait(self, seconds: float | None) -> bool:
        return bool(self._lock.acquire(timeout=-1 if seconds is None else seconds))

    def wake(self) -> None:
        try:
            self._lock.release()
        except RuntimeError:
            pass  # woken already

    def close(self) -> None:
        pass


class _GreenletWaiter:
    """A waiter for a greenlet of another hub, which keeps running."""

    def __init__(self, hub: Any) -> None:
        self._event = Event()
        self._watcher = hub.loop.async_()
        self._watcher.start(self._event.set)

    def wait(self, seconds: float | None) -> bool:
        woken = self._event.wait(seconds)
        self._event.clear()
        return bool(woken)

    def wake(self) -> None:
        self._watcher.send()

    def close(self) -> None:
        self._watcher.stop()


class ThreadCall:
    """One function call to be run in a hub."""

    def __init__(self, hub: Any, function: Callable[[Callable[[Any], None]], Any], wake: Callable[[], None]) -> None:
        self._hub = hub
        self._function = function
        self._wake = wake
        self._context = copy_context()
        # Popping this token decides whether the call begins or is withdrawn; a deque's pop is atomic.
        self._claim = deque((True,))
        self._messages: deque[Any] = deque()
        self._greenlet: greenlet | None = None
        self._value: Any = None
        self._error: BaseException | None = None
        self.done = False

    @property
    def begun(self) -> bool:
        """Whether it runs, or has run, in the hub."""
        return not self._claim

    def withdraw(self) -> bool:
        """Withdraw the call; return False if it has begun."""
        try:
            self._claim.pop()
        except IndexError:
            return False
        return True

    # --- in the hub --------------------------------------------------------------------------

    def begin(self) -> None:
        """Run the function in a greenlet, unless it was withdrawn."""
        if self.withdraw():
            self._greenlet = greenlet(self._run, self._hub)
            self._greenlet.switch()

    def _run(self) -> None:
        try:
            self._value = self._context.run(self._function, self._tell)
        except BaseException as error:
            self._error = error
        self.done = True
        self._wake()

    def _tell(self, message: Any) -> None:
        self._messages.append(message)
        self._wake()

    def _interrupt(self) -> None:
        if self._greenlet is not None and not self.done:
            self._greenlet.throw(GreenletExit)

    # --- in the thread that waits ------------------------------------------------------------

    def hand_over(self, on_message: Callable[[Any], None]) -> None:
        """Call ``on_message`` with each message that the function has told so far."""
        while self._messages:
            on_message(self._messages.popleft())

    def cancel(self) -> None:
        """Withdraw the call, or interrupt it; from any thread."""
        self.withdraw()
        self._hub.loop.run_callback_threadsafe(self._interrupt)

    def result(self) -> Any:
        """Return what the function has returned, or raise what it has raised."""
        error, self._error = self._error, None
        if error is None:
            return self._value
        try:
            raise error
        finally:
            del error


def run_within(seconds: float, hub: Any, function: Callable[[], object]) -> bool:
    """Run ``function`` in a greenlet of ``hub``, another thread's; return whether it has ended within ``seconds``."""
    waiting = waiter()
    call = ThreadCall(hub, lambda tell: function(), waiting.wake)
    deadline = monotonic() + seconds
    hub.loop.run_callback_threadsafe(call.begin)
    try:
        while not call.done and (left := deadline - monotonic()) > 0:
            waiting.wait(left)
    finally:
        call.withdraw()
        waiting.close()
    return call.done
