"""One function call on its way from an OS thread, or a greenlet of another hub, into a gevent hub and back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from time import monotonic
from typing import Any

from greenlet import GreenletExit, greenlet

from rpcmq.transport.current_hub import new_lock

__all__ = ["HubCall", "run_within"]


class HubCall:
    """One function call to be run in a hub, made by the thread, or greenlet of another hub, that waits for it.

    Raises:
        UsageError: it is made by a hub itself, which cannot wait.
    """

    def __init__(self, hub: Any, function: Callable[[Callable[[Any], None]], Any]) -> None:
        self._hub = hub
        self._function = function
        # Held while there is nothing new for whoever waits.
        self._news = new_lock()
        self._news.acquire()
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

    def _wake(self) -> None:
        if self._news.locked():
            self._news.release()

    def _tell(self, message: Any) -> None:
        self._messages.append(message)
        self._wake()

    def _interrupt(self) -> None:
        if self._greenlet is not None and not self.done:
            self._greenlet.throw(GreenletExit)

    # --- in the thread that waits ------------------------------------------------------------

    def wait(self, seconds: float | None) -> bool:
        """Wait until the function has told something or is done, since the last time; False: not within ``seconds``."""
        return bool(self._news.acquire(timeout=-1 if seconds is None else seconds))

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
    call = HubCall(hub, lambda tell: function())
    deadline = monotonic() + seconds
    hub.loop.run_callback_threadsafe(call.begin)
    try:
        while not call.done and (left := deadline - monotonic()) > 0:
            call.wait(left)
    finally:
        call.withdraw()
    return call.done
