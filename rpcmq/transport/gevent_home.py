"""The gevent hub that runs a client, and calls into it from any OS thread.

ZeroMQ sockets and the engines behind them belong to one OS thread. In a program that gevent runs, that is the thread
whose hub the client was made in. In any other program nothing would turn that hub while the program computes, sleeps
or serves requests in threads of its own, so the client lives in the hub of a background thread, one for the process:
what it sends leaves at once, and heartbeats do not depend on what the program does.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import finalize, ref

from gevent import get_hub, monkey
from gevent import sleep as gevent_sleep
from gevent._hub_local import get_hub_if_exists, set_hub
from gevent.exceptions import LoopExit
from greenlet import greenlet

from rpcmq.errors import UsageError
from rpcmq.transport.gevent_shell import GeventShell, program_is_patched
from rpcmq.transport.home import Home
from rpcmq.transport.originals import allocate_lock, start_new_thread
from rpcmq.transport.shell import ClientShell
from rpcmq.transport.thread_calls import ThreadCall, waiter

__all__ = ["GeventHome", "background_home", "home_for", "pause"]

T = TypeVar("T")

# The unpatched original: it concerns OS threads even in a patched program.
_sleep: Callable[[float], None] = monkey.get_original("time", "sleep")

#: Pause after an event loop has ended (seconds).
_LOOP_AGAIN = 0.05
#: Longest wait for a program's own hub to begin another thread's function (seconds).
_PATIENCE = 5.0


def pause(seconds: float) -> None:
    """Wait in this thread: in gevent where it has a hub, so that its other greenlets go on."""
    if get_hub_if_exists() is None:
        _sleep(seconds)
    else:
        gevent_sleep(seconds)


class _Mark:
    """A sentinel whose lifetime is that of an OS thread."""


_marks: Any = monkey.get_original("_thread", "_local")()


def _this_thread() -> _Mark:
    mark: _Mark | None = getattr(_marks, "mark", None)
    if mark is None:
        mark = _marks.mark = _Mark()
    return mark


class GeventHome(Home):
    """The hub of the current OS thread, which is made if it has none.

    Args:
        background: whether the thread only runs the hub.

    Attributes:
        hub: where sockets and engines live.
        background: it runs in an OS thread of its own, in which nothing may block.
        shell: that hub, as the engines' sockets see it.
    """

    __slots__ = ("_made_hub", "_pid", "_thread", "background", "hub")

    def __init__(self, background: bool = False) -> None:
        self._made_hub = get_hub_if_exists() is None
        self.hub: Any = get_hub()
        self.shell: ClientShell = GeventShell(self.run if background else None)
        self.background = background
        self._pid = os.getpid()
        self._thread = ref(_this_thread())

    @property
    def here(self) -> bool:
        """Whether the current OS thread is the one that runs the hub."""
        return get_hub_if_exists() is self.hub

    @property
    def alive(self) -> bool:
        """Whether the thread of the hub has not ended; in the child of a fork, all but the one that forked have."""
        return self._pid == os.getpid() if self.background else self._thread() is not None

    @property
    def usable(self) -> bool:
        """See :meth:`Home.usable`."""
        return self.background or self.here or self.alive

    def when_the_thread_ends(self, function: Callable[[], object]) -> None:
        """Register ``function`` to be called in the hub's thread when that ends. It must not wait for anything.

        Not for the background thread, which ends with the process.
        """
        mark = None if self.background else self._thread()
        if mark is not None:
            finalize(mark, self._at_the_end, function).atexit = False

    def _at_the_end(self, function: Callable[[], object]) -> None:
        if self._pid != os.getpid():
            return  # in the child of a fork all threads but one end at once: what they had is the parent's
        # gevent's own thread-locals may have gone before ours; the hub itself is as the thread has left it.
        set_hub(self.hub)
        try:
            function()
        finally:
            if self._made_hub:
                self.hub.destroy(destroy_loop=True)

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

    def run_with_messages(self, function: Callable[[Callable[[Any], None]], T], on_message: Callable[[Any], None]) -> T:
        """Run ``function`` as :meth:`run` does, from another thread; its messages are handled in the caller's.

        Args:
            function: called with a function that takes a message for ``on_message``.
            on_message: an exception ends the wait, and ``function``.
        """
        if not self.alive:
            raise UsageError("the OS thread that this client was made in has ended; make a new Client")
        waiting = waiter()
        call = ThreadCall(self.hub, function, waiting.wake)
        self.hub.loop.run_callback_threadsafe(call.begin)
        try:
            while not call.done:
                if not waiting.wait(None if self.background or call.begun else _PATIENCE) and call.withdraw():
                    raise UsageError(
                        f"the OS thread that this client was made in has not run its gevent hub for {_PATIENCE:g} s; "
                        "it must wait in gevent, not block; or set RPCMQ_SHELL=threads, for a thread of its own"
                    )
                call.hand_over(on_message)
        except BaseException:
            call.cancel()
            raise
        finally:
            waiting.close()
        call.hand_over(on_message)
        return call.result()  # type: ignore[no-any-return]


# --- selection of the hub ----------------------------------------------------------------------------------

_background: GeventHome | None = None
_starting: Any = allocate_lock()
#: Hubs of threads that a fork has left behind. Never freed: their event loops are the parent's.
_left_behind: list[GeventHome] = []


def home_for(shell: str) -> GeventHome:
    """The home of a client that is made now, in this thread.

    Args:
        shell: ``"gevent"``: the hub of this thread; ``"threads"``: that of the background thread; ``"auto"``: that of
            this thread if it has one already or the program is patched, else that of the background thread.
    """
    if shell == "threads":
        return background_home()
    hub = get_hub_if_exists()
    if hub is not None and _background is not None and _background.hub is hub:
        return _background
    if shell == "gevent" or hub is not None or program_is_patched():
        return GeventHome()
    return background_home()


def background_home() -> GeventHome:
    """Return the hub of this process's background thread, starting it on first use."""
    global _background
    with _starting:
        if _background is None:
            _background = _start()
        return _background


def _start() -> GeventHome:
    ready = allocate_lock()
    ready.acquire()
    made: list[GeventHome] = []

    def live() -> None:
        # Signals are for the threads of the program: what waits there is to be interrupted by them.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        home = GeventHome(background=True)
        hub = home.hub
        # Keeps the loop running while there is nothing else to wait for.
        idle = hub.loop.async_()
        idle.start(lambda: None)
        made.append(home)
        ready.release()
        while True:
            try:
                hub.switch()
            except LoopExit:  # as the interpreter ends; there is nothing to be said of it
                _sleep(_LOOP_AGAIN)
            except BaseException as error:  # an error that gevent hands to a thread's main greenlet
                hub.print_exception(None, type(error), error, error.__traceback__)

    start_new_thread(live, ())
    ready.acquire()
    return made[0]


def _after_fork_in_child() -> None:
    global _background, _starting
    _starting = allocate_lock()
    if _background is not None:
        _left_behind.append(_background)
        _background = None


os.register_at_fork(after_in_child=_after_fork_in_child)
