"""eventlet's hub on gevent's: the one hub there is, by the methods that legacy code calls on it."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

import gevent
from gevent.core import watcher as Watcher  # type: ignore[import-not-found]  # made by gevent at run time
from gevent.hub import Hub as GeventHub
from gevent.socket import wait
from greenlet import getcurrent, greenlet

from .timeout import Timeout

__all__ = ["get_default_hub", "get_hub", "notify_close", "notify_opened", "trampoline", "use_hub"]

#: Kinds of listeners.
READ, WRITE = "read", "write"
_EVENTS = {READ: 1, WRITE: 2}

#: The process whose hub is in use: a fork inherits a hub that is not its own.
_process = os.getpid()


class Timer:
    """Calls back in the hub, once, ``seconds`` from ``schedule()``. The callback must not wait."""

    def __init__(self, seconds: float, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self.seconds = seconds
        self.tpl = callback, args, kwargs
        self.called = False
        self._watcher: Any = None

    def schedule(self) -> None:
        """Start it; those without a delay run in the order in which they were started."""
        self.called = False
        loop = gevent.get_hub().loop
        if self.seconds > 0:
            self._watcher = loop.timer(self.seconds)
            self._watcher.start(self, update=True)
        else:
            self._watcher = loop.run_callback(self)

    @property
    def pending(self) -> bool:
        """Tell whether it is still to be called."""
        return self._watcher is not None and not self.called

    def __call__(self) -> None:
        if self.called:
            return
        self.cancel()
        callback, args, kwargs = self.tpl
        callback(*args, **kwargs)

    def cancel(self) -> None:
        """Don't call back any more. Harmless on one that has run."""
        self.called = True
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.stop()
            watcher.close()


class LocalTimer(Timer):
    """A timer that does nothing if the green thread that made it is dead by then."""

    def __init__(self, seconds: float, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        super().__init__(seconds, callback, *args, **kwargs)
        self.greenlet = getcurrent()

    def __call__(self) -> None:
        if self.greenlet.dead:
            self.cancel()
        else:
            super().__call__()


class FdListener:
    """Calls back in the hub with the file descriptor each time it is ready."""

    def __init__(self, evtype: str, fileno: int, callback: Callable[[int], Any]) -> None:
        self.evtype = evtype
        self.fileno = fileno
        self.cb = callback
        self._watcher = gevent.get_hub().loop.io(fileno, _EVENTS[evtype])
        self._watcher.start(callback, fileno)

    def stop(self) -> None:
        """Listen no more."""
        self._watcher.stop()
        self._watcher.close()


class Hub:
    """The gevent hub of a thread, under eventlet's names."""

    READ, WRITE = READ, WRITE
    running = True
    stopping = False

    def __init__(self, hub: GeventHub) -> None:
        #: The greenlet that runs the loop.
        self.greenlet: greenlet = hub
        self._hub = hub

    def switch(self) -> Any:
        """Let others run, until someone switches back to this greenlet."""
        return self._hub.switch()

    def ensure_greenlet(self) -> None:
        """Exist for callers that revive a dead hub; gevent's never dies."""

    def schedule_call_global(self, seconds: float, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> Timer:
        """Call back in the hub in ``seconds``."""
        return _started(Timer(seconds, callback, *args, **kwargs))

    def schedule_call_local(self, seconds: float, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> Timer:
        """Call back in the hub in ``seconds``, unless the current green thread is dead by then."""
        return _started(LocalTimer(seconds, callback, *args, **kwargs))

    def add(self, evtype: str, fileno: int, callback: Callable[[int], Any], *_: Any) -> FdListener:
        """Call back in the hub whenever ``fileno`` is ready for ``evtype``, READ or WRITE."""
        return FdListener(evtype, fileno, callback)

    def remove(self, listener: FdListener) -> None:
        """Stop a listener that ``add`` gave."""
        listener.stop()

    def abort(self, wait: bool = False) -> None:
        """Accepted and ignored: the loop of a process ends with the process."""


def _started(timer: Timer) -> Timer:
    timer.schedule()
    return timer


def get_hub() -> Hub:
    """Give the hub of the current thread."""
    hub = gevent.get_hub()
    ours: Hub | None = getattr(hub, "_eventlet_hub", None)
    if ours is None:
        ours = hub._eventlet_hub = Hub(hub)  # type: ignore[attr-defined]
    return ours


def get_default_hub() -> None:
    """Give the name of the preferred hub; gevent chooses its own loop."""


def use_hub(mod: Any = None) -> None:
    """Start afresh in a forked child, which must not run its parent's green threads; else nothing.

    Services of several processes call this first thing in a child. ``mod`` is ignored.
    """
    global _process
    if os.getpid() == _process:
        return
    _process = os.getpid()
    hub = gevent.get_hub()
    # A greenlet whose parent is the old hub can't outlive it, so only the main one gets a new hub.
    if getcurrent() is hub.parent:
        _stop_watchers(hub)
        hub.destroy(destroy_loop=True)


def _stop_watchers(hub: GeventHub) -> None:
    """Stop all that a hub waits for: while it is destroyed, it still calls back what was due at the fork."""
    for watcher in gc.get_objects():
        if isinstance(watcher, Watcher) and watcher.loop is hub.loop:
            watcher.stop()


def trampoline(
    fd: Any,
    read: bool | None = None,
    write: bool | None = None,
    timeout: float | None = None,
    timeout_exc: Any = Timeout,
    mark_as_closed: Any = None,
) -> None:
    """Wait until ``fd`` is readable (or writable), at most ``timeout`` seconds.

    Raises ``timeout_exc`` when they have passed.
    """
    assert bool(read) != bool(write), "not allowed to trampoline for reading and writing"
    fileno: int = fd if isinstance(fd, int) else fd.fileno()
    watcher = gevent.get_hub().loop.io(fileno, _EVENTS[READ if read else WRITE])
    try:
        with gevent.Timeout(timeout, timeout_exc):
            wait(watcher)
    finally:
        watcher.close()


def notify_close(fd: int) -> None:
    """Accepted and ignored: gevent's sockets wake their own waiters when they are closed."""


def notify_opened(fd: int) -> None:
    """Accepted and ignored, as above."""
