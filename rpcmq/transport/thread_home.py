"""The home of clients in a plain thread: one for the process, made when it is first used, and anew after a fork."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from rpcmq.transport.home import Home
from rpcmq.transport.originals import allocate_lock, program_is_patched
from rpcmq.transport.shell import ClientShell
from rpcmq.transport.thread_deputies import Errand, is_to_be_deputed
from rpcmq.transport.thread_shell import ThreadShell

__all__ = ["ThreadHome", "outside", "thread_home"]

T = TypeVar("T")


class ThreadHome(Home):
    """The loop of a plain thread, as seen from the others: each may use what lives there, one at a time."""

    __slots__ = ("_pid", "_threads", "monitor")

    def __init__(self) -> None:
        self._threads = ThreadShell()
        self.shell: ClientShell = self._threads
        self.monitor = self._threads.monitor
        self._pid = os.getpid()

    @property
    def alive(self) -> bool:
        """See :meth:`Home.alive`."""
        return self._pid == os.getpid()

    @property
    def usable(self) -> bool:
        """See :meth:`Home.usable`."""
        return self._threads.is_as_made

    def when_the_thread_ends(self, function: Callable[[], object]) -> Callable[[], object]:
        """See :meth:`Home.when_the_thread_ends`: it ends with the process."""
        return lambda: None

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """See :meth:`Home.post`."""
        self.shell.call_from_any_thread(self._spawn, function, *args)

    def _spawn(self, function: Callable[..., object], *args: Any) -> None:
        try:
            self.shell.spawn(function, *args)
        except RuntimeError as error:
            # At the end of a program Python starts no thread any more, from 3.12 on. All connections are closed then.
            if "interpreter shutdown" not in str(error):
                raise

    def run(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """See :meth:`Home.run`."""
        self._threads.check_not_patched_since()
        return self._threads.inside_undisturbed(partial(function, *args, **options))

    def run_or_undo(self, undo: Callable[[T], object], function: Callable[..., T], *args: Any, **options: Any) -> T:
        """See :meth:`Home.run_or_undo`."""
        self._threads.check_not_patched_since()
        return self._threads.inside_undisturbed(partial(function, *args, **options), undo=undo)

    def run_here(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """See :meth:`Home.run_here`."""
        self._threads.check_not_patched_since()
        return self._threads.inside(function, *args, **options)

    def end(self, function: Callable[..., T], *args: Any) -> T:
        """See :meth:`Home.end`."""
        threads = self._threads
        if threads.is_as_made or threads.is_current:
            return threads.inside_undisturbed(partial(function, *args), goes_on=True)
        return threads.inside_elsewhere(function, *args)

    def run_with_messages(self, function: Callable[[Callable[[Any], None]], T], on_message: Callable[[Any], None]) -> T:
        """See :meth:`Home.run_with_messages`."""
        self._threads.check_not_patched_since()
        return self._threads.inside_with_messages(function, on_message)

    def forget(self) -> None:
        """In the child of a fork: it is the parent's."""
        self._threads.forget()


#: Pause of a green thread before it looks again whether another one has made the home (seconds).
_LOOK_AGAIN = 0.005

_home: ThreadHome | None = None
#: Homes made before gevent or eventlet has patched the process; their clients can be closed still.
_before_the_patch: list[ThreadHome] = []
_starting: Any = allocate_lock()
#: Homes that a fork has left behind. Never freed: their sockets are the parent's.
_left_behind: list[ThreadHome] = []


def thread_home() -> ThreadHome:
    """The home of this process's clients that live in a plain thread; its thread is started on first use.

    Another one is made in a process that was patched since: the locks of the first are of the wrong kind there.
    """
    home = _home
    if home is not None and home.usable:
        return home
    if is_to_be_deputed():
        # A signal would leave a thread behind, or the lock.
        return Errand(_made_once).run()
    return _made_once()


def _made_once() -> ThreadHome:
    starting = _starting
    # A green thread that makes it lets the others run, none of which may block the thread of them all.
    while not starting.acquire(not program_is_patched()):
        time.sleep(_LOOK_AGAIN)
    try:
        return _made_if_needed()
    finally:
        starting.release()


def _made_if_needed() -> ThreadHome:
    global _home
    if _home is None or not _home.usable:
        if _home is not None:
            _before_the_patch.append(_home)
        _home = ThreadHome()
    return _home


def outside(function: Callable[..., T], *args: Any) -> T:
    """Call ``function`` of the application, without the monitor if the caller holds it."""
    if _home is not None and (monitor := _home.monitor).is_held():
        return monitor.outside(function, *args)
    for home in _before_the_patch:
        if home.monitor.is_held():
            return home.monitor.outside(function, *args)
    return function(*args)


def _after_fork_in_child() -> None:
    global _home, _starting
    _starting = allocate_lock()
    for home in (*_before_the_patch, _home):
        if home is not None:
            _left_behind.append(home)
            home.forget()
    _before_the_patch.clear()
    _home = None


os.register_at_fork(after_in_child=_after_fork_in_child)
