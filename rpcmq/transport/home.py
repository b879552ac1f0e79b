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
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar
from weakref import finalize, ref

from gevent import get_hub, monkey
from gevent import sleep as gevent_sleep
from gevent._hub_local import get_hub_if_exists, set_hub
from gevent.exceptions import LoopExit
from greenlet import greenlet

from rpcmq.errors import UsageError
from rpcmq.transport.thread_calls import ThreadCall, allocate_lock, waiter

__all__ = [
    "Home",
    "Housed",
    "at_home",
    "background_home",
    "home_for",
    "is_background",
    "pause",
    "program_is_patched",
    "run_at_home",
]

T = TypeVar("T")
P = ParamSpec("P")

# The unpatched originals: these concern OS threads even in a patched program.
_sleep: Callable[[float], None] = monkey.get_original("time", "sleep")
_start_new_thread: Callable[..., int] = monkey.get_original("_thread", "start_new_thread")

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


def program_is_patched() -> bool:
    """Whether gevent has patched blocking calls, so that waiting lets the hub run."""
    return monkey.is_module_patched("threading") or monkey.is_module_patched("socket")


class _Mark:
    """A sentinel whose lifetime is that of an OS thread."""


_marks: Any = monkey.get_original("_thread", "_local")()


def _this_thread() -> _Mark:
    mark: _Mark | None = getattr(_marks, "mark", None)
    if mark is None:
        mark = _marks.mark = _Mark()
    return mark


class Home:
    """The hub of the current OS thread, which is made if it has none.

    Args:
        background: whether the thread only runs the hub.

    Attributes:
        hub: where sockets and engines live.
        background: it runs in an OS thread of its own, in which nothing may block.
    """

    __slots__ = ("_made_hub", "_pid", "_thread", "background", "hub")

    def __init__(self, background: bool = False) -> None:
        self._made_hub = get_hub_if_exists() is None
        self.hub: Any = get_hub()
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


class Housed(Protocol):
    """An object owned by a hub.

    Attributes:
        hub: that hub; in the child of a fork it may be that of the parent still.
    """

    hub: Any

    @property
    def home(self) -> Home:
        """The hub and its thread."""


H = TypeVar("H", bound=Housed)


def at_home(method: Callable[Concatenate[H, P], T]) -> Callable[Concatenate[H, P], T]:
    """Run ``method`` in its object's hub, whichever thread calls it; ``on_progress`` runs in the caller's thread."""

    @wraps(method)
    def run(self: H, /, *args: P.args, **options: P.kwargs) -> T:
        if get_hub_if_exists() is self.hub:
            return method(self, *args, **options)
        return run_at_home(method, self, *args, **options)

    return run


def run_at_home(method: Callable[Concatenate[H, P], T], self: H, /, *args: P.args, **options: P.kwargs) -> T:
    """Run ``method`` of ``self`` in its home from another thread, as :func:`at_home` does.

    A method that is called so often that the wrapper's part of its time shows looks itself where it is.
    """
    home = self.home
    on_progress: Any = options.get("on_progress")
    if on_progress is None:
        return home.run(method, self, *args, **options)

    def with_messages(tell: Callable[[Any], None]) -> T:
        options["on_progress"] = tell
        return method(self, *args, **options)

    return home.run_with_messages(with_messages, on_progress)


# --- selection of the hub ----------------------------------------------------------------------------------

_background: Home | None = None
_starting: Any = allocate_lock()
#: Hubs of threads that a fork has left behind. Never freed: their event loops are the parent's.
_left_behind: list[Home] = []


def home_for(shell: str) -> Home:
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
        return Home()
    return background_home()


def background_home() -> Home:
    """Return the hub of this process's background thread, starting it on first use."""
    global _background
    with _starting:
        if _background is None:
            _background = _start()
        return _background


def is_background(hub: Any) -> bool:
    """Whether ``hub`` is that of the background thread, or of that of a parent that has forked."""
    return any(home.hub is hub for home in (_background, *_left_behind) if home is not None)


def _start() -> Home:
    ready = allocate_lock()
    ready.acquire()
    made: list[Home] = []

    def live() -> None:
        # Signals are for the threads of the program: what waits there is to be interrupted by them.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        home = Home(background=True)
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

    _start_new_thread(live, ())
    ready.acquire()
    return made[0]


def _after_fork_in_child() -> None:
    global _background, _starting
    _starting = allocate_lock()
    if _background is not None:
        _left_behind.append(_background)
        _background = None


os.register_at_fork(after_in_child=_after_fork_in_child)
