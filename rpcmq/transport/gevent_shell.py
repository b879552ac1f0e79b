"""The shell of gevent: the hub of the current OS thread. See :mod:`rpcmq.transport.shell`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar, cast

import gevent
from gevent import get_hub, getcurrent
from gevent._hub_local import get_hub_if_exists
from gevent.event import Event
from gevent.lock import BoundedSemaphore

from rpcmq.transport.current_hub import program_is_patched
from rpcmq.transport.gevent_names import GeventNameCheck
from rpcmq.transport.gevent_workers import GeventWorkers
from rpcmq.transport.hub_calls import run_within
from rpcmq.transport.shell import ClientShell, Handle, WaitableEvent, Workers

__all__ = ["GeventShell"]

T = TypeVar("T")

#: Longest wait at the end of the program for the hub of another thread, which may be blocked (seconds).
_AT_EXIT = 3.0
#: Watchers that are there until the program has ended.
_kept: list[object] = []


class GeventShell(ClientShell):
    """The hub of the current OS thread, which is made if it has none. Those of one hub are equal.

    Attributes:
        hub: that hub.
    """

    __slots__ = ("_loop", "_park", "hub")
    outside = None
    shares_interpreter = False
    cannot_wait = "the gevent hub cannot wait for a call; spawn a greenlet for it"

    def __init__(self) -> None:
        self.hub: Any = get_hub()
        self._loop = self.hub.loop
        self._park: Callable[[], object] = self.hub.switch

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GeventShell) and other.hub is self.hub

    def __hash__(self) -> int:
        return hash(self.hub)

    def call_soon(self, function: Callable[..., object], *args: object) -> Handle:
        """See :meth:`Shell.call_soon`."""
        callback: Handle = self._loop.run_callback(function, *args)
        return callback

    def call_from_any_thread(self, function: Callable[..., object], *args: object) -> None:
        """See :meth:`ClientShell.call_from_any_thread`."""
        self._loop.run_callback_threadsafe(function, *args)

    def call_later(self, seconds: float, function: Callable[[], object]) -> Handle:
        """See :meth:`Shell.call_later`."""
        timer = self._loop.timer(seconds)
        timer.start(function)
        handle: Handle = timer
        return handle

    def call_every(self, seconds: float, function: Callable[[], object]) -> Handle:
        """See :meth:`Shell.call_every`."""
        timer = self._loop.timer(seconds, seconds)
        timer.start(function)
        handle: Handle = timer
        return handle

    def call_when_readable(self, fd: int, function: Callable[[], object]) -> Handle:
        """See :meth:`Shell.call_when_readable`."""
        watcher = self._loop.io(fd, 1)
        watcher.start(function)
        handle: Handle = watcher
        return handle

    def check_name(self, url: str, on_failure: Callable[[str], object]) -> Handle:
        """See :meth:`Shell.check_name`."""
        return GeventNameCheck(url, on_failure)

    @property
    def is_current(self) -> bool:
        """See :meth:`Shell.is_current`."""
        return get_hub_if_exists() is self.hub

    @property
    def can_wait(self) -> bool:
        """See :meth:`Shell.can_wait`."""
        return getcurrent() is not self.hub

    @property
    def may_wait(self) -> bool:
        """See :meth:`ClientShell.may_wait`."""
        return getcurrent() is not self.hub and get_hub_if_exists() is self.hub

    @property
    def may_starve(self) -> bool:
        """See :meth:`Shell.may_starve`."""
        # A hub goes on when one of its greenlets ends or waits. A program that gevent has not patched may compute, or
        # block, in its main greenlet for as long as it likes.
        return getcurrent().parent is None and not program_is_patched()

    def event(self) -> WaitableEvent:
        """See :meth:`Shell.event`."""
        return cast("WaitableEvent", Event())

    def sleep(self, seconds: float) -> None:
        """See :meth:`Shell.sleep`."""
        gevent.sleep(seconds)

    def run_together(self, functions: Sequence[Callable[[], object]]) -> None:
        """See :meth:`Shell.run_together`."""
        gevent.joinall([gevent.spawn(function) for function in functions])

    def parking(self) -> tuple[Callable[[], object], Callable[[], object]]:
        """See :meth:`ClientShell.parking`."""
        return getcurrent().switch, self._park

    def lock(self) -> AbstractContextManager[Any]:
        """See :meth:`ClientShell.lock`."""
        return cast("AbstractContextManager[Any]", BoundedSemaphore())

    def spawn(self, function: Callable[..., object], *args: object) -> Callable[[], object] | None:
        """See :meth:`ClientShell.spawn`."""
        return partial(gevent.spawn(function, *args).kill, block=False)

    def workers(self, handle: Callable[[T], None], most: int) -> Workers[T]:
        """See :meth:`ClientShell.workers`."""
        return GeventWorkers(handle)

    def print_exception(self, context: object, error: BaseException) -> None:
        """See :meth:`Shell.print_exception`."""
        self.hub.handle_error(context, type(error), error, error.__traceback__)

    def run_at_exit(self, function: Callable[[], object]) -> bool:
        """See :meth:`Shell.run_at_exit`."""
        if self.is_current:
            function()
            return True
        # A thread that is still there when the program ends is a daemon. If its hub wakes up while the interpreter
        # is finalized, it is ended inside a greenlet, which can crash the process: nothing of ours may wake it.
        return run_within(_AT_EXIT, self.hub, partial(self._run_last, function))

    def _run_last(self, function: Callable[[], object]) -> None:
        # A hub that has nothing left to wait for raises LoopExit in whoever waits in it.
        idle = self._loop.async_()
        idle.start(lambda: None)
        _kept.append(idle)
        function()

    def after_fork_in_child(self) -> None:
        """See :meth:`Shell.after_fork_in_child`."""
        gevent.reinit()

    @property
    def survives_fork(self) -> bool:
        """See :meth:`Shell.survives_fork`."""
        return self.is_current
