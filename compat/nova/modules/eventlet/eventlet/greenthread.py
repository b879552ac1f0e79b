"""Green threads: greenlets of gevent's hub that can be waited for, linked to, cancelled and killed."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from gevent import get_hub, sleep
from greenlet import GreenletExit, getcurrent, greenlet

from . import debug, hubs
from .event import Event
from .timeout import Timeout, with_timeout

__all__ = [
    "GreenThread",
    "call_after",
    "call_after_global",
    "call_after_local",
    "cancel",
    "exc_after",
    "getcurrent",
    "kill",
    "sleep",
    "spawn",
    "spawn_after",
    "spawn_after_local",
    "spawn_n",
    "with_timeout",
]


class _Bare(greenlet):
    """A greenlet of the hub that runs a function, and can be withdrawn before it begins."""

    def __init__(self, parent: greenlet | None = None) -> None:
        super().__init__(self._run, get_hub() if parent is None else parent)
        self._begun = False
        self._withdrawn = False
        #: The timer that will start it.
        self._timer: hubs.Timer | None = None

    def _start(self, timer: hubs.Timer) -> None:
        self._timer = timer
        timer.schedule()

    def _run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._begun = True
        _guarded(self.main, function, args, kwargs)

    def main(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        function(*args, **kwargs)

    def _withdraw(self, throw_args: tuple[Any, ...]) -> None:
        """End without having begun."""
        self._withdrawn = True
        if self._timer is not None:
            self._timer.cancel()

    @property
    def dead(self) -> bool:
        """Tell whether it has ended, or never will begin."""
        return self._withdrawn or bool(greenlet.dead.__get__(self))


class GreenThread(_Bare):
    """A green thread; ``spawn`` makes them.

    A plain greenlet, not a ``gevent.Greenlet``: ``link``, ``kill`` and the truth of one mean other things there.
    """

    def __init__(self, parent: greenlet | None = None) -> None:
        super().__init__(parent)
        self._exit_event = Event()
        self._exit_funcs: deque[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = deque()
        self._resolving_links = False

    def wait(self) -> Any:
        """Give what the function returned, or raise what it raised: GreenletExit if it was killed."""
        return self._exit_event.wait()

    def link(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Call ``func(self, *args, **kwargs)`` when this one has ended: at once, if it has."""
        self._exit_funcs.append((func, args, kwargs))
        if self._exit_event.ready():
            self._resolve_links()

    def unlink(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
        """Take back a ``link`` with just these arguments; tell whether there was one."""
        try:
            self._exit_funcs.remove((func, args, kwargs))
        except ValueError:
            return False
        return True

    def kill(self, *throw_args: Any) -> None:
        """Raise GreenletExit, or what is given, where it stands now. Returns once it runs no more."""
        kill(self, *throw_args)

    def cancel(self, *throw_args: Any) -> None:
        """Like ``kill``, but only if it has not begun to run."""
        cancel(self, *throw_args)

    def main(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Run the function, keep its outcome, call the links; an exception is kept and raised."""
        try:
            result = function(*args, **kwargs)
        except BaseException:
            self._exit_event.send_exception(*sys.exc_info())
            self._resolve_links()
            raise
        self._exit_event.send(result)
        self._resolve_links()

    def _resolve_links(self) -> None:
        if self._resolving_links:
            return
        self._resolving_links = True
        try:
            while self._exit_funcs:
                func, args, kwargs = self._exit_funcs.popleft()
                func(self, *args, **kwargs)
        finally:
            self._resolving_links = False

    def _withdraw(self, throw_args: tuple[Any, ...]) -> None:
        super()._withdraw(throw_args)
        self._exit_event.send_exception(*throw_args or (GreenletExit,))
        _guarded(self._resolve_links)


def _guarded(function: Callable[..., Any], *args: Any) -> None:
    """Call it; report what it raises, which nobody else will: a traceback to stderr. An exit is no error."""
    try:
        function(*args)
    except GreenletExit:
        pass  # an exit is no error
    except BaseException:
        hub = get_hub()
        kind, value, tb = sys.exc_info()
        assert kind is not None
        # SystemExit and KeyboardInterrupt end the main greenlet, whatever is shown.
        if debug.showing_hub_exceptions() or issubclass(kind, hub.SYSTEM_ERROR):
            hub.handle_error(getcurrent(), kind, value, tb)


def _spawn(
    timer: type[hubs.Timer], seconds: float, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> GreenThread:
    thread = GreenThread()
    thread._start(timer(seconds, thread.switch, function, args, kwargs))
    return thread


def spawn(function: Callable[..., Any], *args: Any, **kwargs: Any) -> GreenThread:
    """Call the function in a green thread of its own, soon."""
    return _spawn(hubs.Timer, 0, function, args, kwargs)


def spawn_after(seconds: float, function: Callable[..., Any], *args: Any, **kwargs: Any) -> GreenThread:
    """Call the function in a green thread of its own, ``seconds`` from now."""
    return _spawn(hubs.Timer, seconds, function, args, kwargs)


def spawn_after_local(seconds: float, function: Callable[..., Any], *args: Any, **kwargs: Any) -> GreenThread:
    """Like ``spawn_after``; it does not begin if the current green thread is dead by then."""
    return _spawn(hubs.LocalTimer, seconds, function, args, kwargs)


def spawn_n(function: Callable[..., Any], *args: Any, **kwargs: Any) -> greenlet:
    """Call the function soon in a bare greenlet, for whose outcome nobody can wait."""
    bare = _Bare()
    bare._start(hubs.Timer(0, bare.switch, function, args, kwargs))
    return bare


def call_after_global(seconds: float, function: Callable[..., Any], *args: Any, **kwargs: Any) -> hubs.Timer:
    """Call the function in a bare greenlet, ``seconds`` from now; gives what can be cancelled."""
    return hubs.get_hub().schedule_call_global(seconds, spawn_n, function, *args, **kwargs)


def call_after_local(seconds: float, function: Callable[..., Any], *args: Any, **kwargs: Any) -> hubs.Timer:
    """Like ``call_after_global``, unless the current green thread is dead by then."""
    return hubs.get_hub().schedule_call_local(seconds, spawn_n, function, *args, **kwargs)


call_after = call_after_local


def exc_after(seconds: float | None, *throw_args: Any) -> Timeout | None:
    """Raise an exception in the current green thread, ``seconds`` from now; gives what can be cancelled."""
    return None if seconds is None else Timeout(seconds, throw_args[0] if throw_args else None)


def cancel(g: greenlet, *throw_args: Any) -> None:
    """Kill ``g`` if it has not begun to run, else leave it alone."""
    if not g:
        kill(g, *throw_args)


def kill(g: greenlet, *throw_args: Any) -> None:
    """Raise GreenletExit, or what is given, in ``g`` now; it has run from there until it waits or ends.

    One that has not begun never will; who waits for it gets the exception. Nothing happens to a dead one.
    """
    if g.dead:
        return
    if isinstance(g, _Bare) and not g._begun:
        g._withdraw(throw_args)
        return
    current, hub = getcurrent(), get_hub()
    if current is g or current is hub:
        g.throw(*throw_args)
        return
    # It has its exception before anything else can happen to it; our turn comes when it has let go.
    turn = hub.loop.run_callback(current.switch)
    try:
        g.throw(*throw_args)
    finally:
        turn.stop()
