"""The way from the sockets' thread, or any other, into an event loop."""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future
from collections import deque
from collections.abc import Callable
from typing import Any

from rpcmq.client.thread_process import ThreadProcess
from rpcmq.core.process.call import Call
from rpcmq.transport.shell import Handle

__all__ = ["LoopPort", "Waiting", "resolve"]

#: Interval of looking whether the event loop was closed (seconds).
_SWEEP = 1.0


class LoopPort:
    """Calls functions in an event loop, which is woken once for all that are handed over meanwhile.

    Args:
        loop: the event loop; this is made in its thread.
        process: the engines in which tasks of the loop wait.
        on_closed: called in the sockets' thread when the event loop or the client was closed.
    """

    __slots__ = ("_handed_over", "_is_rung", "_on_closed", "_process", "_timer", "loop", "owners")

    def __init__(
        self, loop: AbstractEventLoop, process: ThreadProcess, on_closed: Callable[[LoopPort], object]
    ) -> None:
        self.loop = loop
        self._process = process
        self._on_closed = on_closed
        self._handed_over: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._is_rung = False
        self._timer: Handle | None = None
        #: Called in the sockets' thread when the event loop was closed.
        self.owners: list[Callable[[], object]] = []
        process.post(self._watch)

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Call ``function`` in the event loop soon, or never if that is closed. From any thread."""
        self._handed_over.append((function, args))
        if not self._is_rung:
            self._is_rung = True
            try:
                self.loop.call_soon_threadsafe(self._take)
            except RuntimeError:
                self._handed_over.clear()  # the loop is closed: see _sweep

    def _take(self) -> None:
        # First: what is handed over from here on rings again.
        self._is_rung = False
        handed_over = self._handed_over
        for _ in range(len(handed_over)):
            function, args = handed_over.popleft()
            try:
                function(*args)
            except Exception as error:
                self.loop.call_exception_handler({"message": f"rpcmq: {function!r} failed", "exception": error})

    # --- in the sockets' thread --------------------------------------------------------------

    def _watch(self) -> None:
        self._timer = self._process.shell.call_every(_SWEEP, self._sweep)

    def _sweep(self) -> None:
        """Cancel what waits for an event loop that was closed: nobody else would."""
        if not self.loop.is_closed():
            if self._process.connection.closed:
                self._end()  # nobody waits any more
            return
        self._handed_over.clear()
        for call in list(self._process.calls.open.values()):
            if self._has_waited_for(call):
                self._process.cancel(call)
        direct = self._process.direct
        for link, call in direct.open_calls():
            if self._has_waited_for(call):
                direct.cancel(link, call)
        for closed in self.owners:
            self._process.switch(closed)
        self._end()

    def _has_waited_for(self, call: Call) -> bool:
        """Return whether a task of the event loop has waited for ``call``; nobody does any more."""
        is_ours = isinstance(call.waiter, Waiting) and call.waiter.port is self
        if is_ours:
            call.waiter = None
        return is_ours

    def _end(self) -> None:
        """Look after the event loop no more."""
        self._on_closed(self)
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.stop()
            timer.close()


class Waiting:
    """A task that waits for one of the process's engines."""

    __slots__ = ("future", "port")

    def __init__(self, port: LoopPort) -> None:
        self.port = port
        self.future: Future[None] = port.loop.create_future()

    def __call__(self) -> None:
        """Have the task go on. From any thread."""
        self.port.post(resolve, self.future, None)

    resume = __call__


def resolve(future: Future[Any], value: Any) -> None:
    """Set the result of ``future``, unless it was cancelled. In its event loop."""
    if not future.done():
        future.set_result(value)
