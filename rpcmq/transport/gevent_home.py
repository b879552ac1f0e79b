"""The gevent hub that runs a client, and calls into it from any OS thread.

ZeroMQ sockets and the engines behind them belong to one OS thread: that whose hub the client was made in.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar
from weakref import finalize, ref

from gevent import get_hub, monkey
from gevent._hub_local import get_hub_if_exists, set_hub
from greenlet import greenlet

from rpcmq.errors import UsageError
from rpcmq.transport.gevent_shell import GeventShell
from rpcmq.transport.home import Home
from rpcmq.transport.hub_calls import HubCall
from rpcmq.transport.shell import ClientShell

__all__ = ["GeventHome"]

T = TypeVar("T")

#: Longest wait for a program's own hub to begin another thread's function (seconds).
_PATIENCE = 5.0


class _Mark:
    """A sentinel whose lifetime is that of an OS thread."""


_marks: Any = monkey.get_original("_thread", "_local")()


def _this_thread() -> _Mark:
    mark: _Mark | None = getattr(_marks, "mark", None)
    if mark is None:
        mark = _marks.mark = _Mark()
    return mark


def _at_the_end(hub: Any, pid: int, function: Callable[[], object]) -> None:
    if pid != os.getpid():
        return  # in the child of a fork all threads but one end at once: what they had is the parent's
    # gevent's own thread-locals may have gone before ours; the hub itself is as the thread has left it.
    set_hub(hub)
    function()


class GeventHome(Home):
    """The hub of the current OS thread, which is made if it has none.

    Attributes:
        hub: where sockets and engines live.
        shell: that hub, as the engines' sockets see it.
    """

    __slots__ = ("_pid", "_thread", "hub")

    def __init__(self) -> None:
        has_hub = get_hub_if_exists() is not None
        self.hub: Any = get_hub()
        self.shell: ClientShell = GeventShell()
        self._pid = os.getpid()
        self._thread = ref(_this_thread())
        if not has_hub:
            self.when_the_thread_ends(partial(self.hub.destroy, destroy_loop=True))

    @property
    def here(self) -> bool:
        """Whether the current OS thread is the one that runs the hub."""
        return get_hub_if_exists() is self.hub

    @property
    def alive(self) -> bool:
        """Whether the thread of the hub has not ended; in the child of a fork, all but the one that forked have."""
        return self._thread() is not None

    @property
    def usable(self) -> bool:
        """See :meth:`Home.usable`."""
        return self.here or self.alive

    def when_the_thread_ends(self, function: Callable[[], object]) -> Callable[[], object]:
        """Register ``function`` to be called in the hub's thread when that ends. It must not wait for anything.

        Returns:
            A function that takes that back. What was registered last is called first.
        """
        mark = self._thread()
        if mark is None:
            return lambda: None
        finalizer = finalize(mark, _at_the_end, self.hub, self._pid, function)
        finalizer.atexit = False
        return finalizer.detach

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Run ``function`` in a greenlet of the hub soon; from any OS thread."""
        self.hub.loop.run_callback_threadsafe(self._spawn, function, args)

    def _spawn(self, function: Callable[..., object], args: tuple[Any, ...]) -> None:
        greenlet(function, self.hub).switch(*args)

    def run(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """Run ``function`` in a greenlet of the hub and wait for it; from any OS thread and any other hub's greenlets.

        It has the caller's context variables. If the wait is interrupted, it is, too.

        Returns:
            What it returns.

        Raises:
            UsageError: the hub's thread has ended or is blocked, or this is a callback of a hub, which cannot wait.
            BaseException: what it raises.
        """
        if self.here:
            return function(*args, **options)
        return self.run_with_messages(lambda tell: function(*args, **options), lambda message: None)

    def run_or_undo(self, undo: Callable[[T], object], function: Callable[..., T], *args: Any, **options: Any) -> T:
        """See :meth:`Home.run_or_undo`: what is interrupted here undoes itself."""
        return self.run(function, *args, **options)

    def run_here(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """See :meth:`Home.run_here`: one thread only may use the engines."""
        return self.run(function, *args, **options)

    def end(self, function: Callable[..., T], *args: Any) -> T:
        """See :meth:`Home.end`."""
        return self.run(function, *args)

    def run_with_messages(self, function: Callable[[Callable[[Any], None]], T], on_message: Callable[[Any], None]) -> T:
        """Run ``function`` as :meth:`run` does, from another thread; its messages are handled in the caller's.

        Args:
            function: called with a function that takes a message for ``on_message``.
            on_message: an exception ends the wait, and ``function``.
        """
        if not self.alive:
            raise UsageError("the OS thread that this client was made in has ended; make a new Client")
        call = HubCall(self.hub, function)
        self.hub.loop.run_callback_threadsafe(call.begin)
        try:
            while not call.done:
                if not call.wait(None if call.begun else _PATIENCE) and call.withdraw():
                    raise UsageError(
                        f"the OS thread that this client was made in has not run its gevent hub for {_PATIENCE:g} s; "
                        "it must wait in gevent, not block; or set RPCMQ_SHELL=threads, for a thread of its own"
                    )
                call.hand_over(on_message)
        except BaseException:
            call.cancel()
            raise
        call.hand_over(on_message)
        return call.result()  # type: ignore[no-any-return]
