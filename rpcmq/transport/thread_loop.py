"""A loop in a plain thread of the operating system: file descriptors, timers, and calls from other threads.

It is one also where gevent or eventlet has patched the standard library, and needs neither.
"""

from __future__ import annotations

import heapq
import os
import signal
import sys
import traceback
from _thread import TIMEOUT_MAX
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from math import inf
from time import monotonic
from typing import Any

from rpcmq.transport.handoff import HandoffLock, wake_next_and_acquire
from rpcmq.transport.monitor import Monitor
from rpcmq.transport.originals import allocate_lock, get_ident, new_epoll, new_poll, start_new_thread
from rpcmq.transport.thread_wakes import PATIENCE, WakeQueue

__all__ = ["Callback", "Inbox", "ThreadLoop", "call_printing", "print_failure"]

_Wait = Callable[[float], list[tuple[int, int]]]

_READABLE, _MUTED = 1, 0
#: Longest sleep (seconds); nothing depends on it.
_LONGEST = 60.0
#: Sleep after a turn that has failed (seconds).
_AFTER_FAILURE = 0.001
#: Calls handed over while threads wake one another, at which the loop begins with them before that is over.
_BATCH = 32
#: Stopped timers that are kept until they are due, beside those that are not stopped.
_STOPPED = 100


def print_failure(context: object, error: BaseException) -> None:
    """Print ``error``, which ``context`` has survived, where the program still has somewhere to print to."""
    if sys.stderr is not None:
        try:
            sys.stderr.write(f"{context!r} failed:\n{''.join(traceback.format_exception(error))}")
        except Exception:
            pass  # the context or the error cannot be printed, or the stream is closed


def call_printing(function: Callable[..., object], *args: object) -> None:
    """Call ``function``; print what it raises."""
    try:
        function(*args)
    except BaseException as error:
        print_failure(function, error)


class Callback:
    """A function that the loop will call."""

    __slots__ = ("_on_stop", "args", "due", "function", "period")

    def __init__(
        self, function: Callable[..., object] | None, args: tuple[Any, ...] = (),
        on_stop: Callable[[Callback], None] | None = None,
    ) -> None:  # fmt: skip
        #: None: it was stopped.
        self.function = function
        self.args = args
        self._on_stop = on_stop
        self.due = 0.0
        self.period = 0.0

    def stop(self) -> None:
        """See :class:`rpcmq.transport.shell.Handle`."""
        if self.function is not None:
            self.function = None
            if self._on_stop is not None:
                self._on_stop(self)

    close = stop


class Inbox:
    """A queue into the loop's thread, which calls ``take_all`` when there is something in it.

    Attributes:
        waiting: what was put in and not yet taken out.
    """

    __slots__ = ("_loop", "_wake_next", "take_all", "waiting")

    def __init__(self, loop: ThreadLoop, take_all: Callable[[], object]) -> None:
        self._loop = loop
        self.take_all = take_all
        self.waiting: deque[Any] = deque()
        self._wake_next = loop.wakes.wake_next

    def put_before_waiting(self, item: Any) -> None:
        """As :meth:`put`, in a thread that then calls :meth:`wait`."""
        self.waiting.append(item)
        if self._loop.is_asleep and (not self._loop.wakes.waiting or len(self.waiting) >= _BATCH):
            self._loop.ring()

    def wait(self, lock: Any, until: float = inf) -> None:
        """Wait for ``lock``, made by :func:`rpcmq.transport.handoff.new_handoff_lock`, but not beyond ``until``.

        Wakes the thread that is next before: another one whose answer is there, or else the loop's.

        Args:
            until: monotonic seconds.
        """
        # Seconds; -1: for ever.
        longest = -1.0 if until == inf else min(max(0.0, until - monotonic()), TIMEOUT_MAX)
        if type(lock) is HandoffLock:
            if wake_next_and_acquire(self._loop.wakes.waiting, lock, longest):
                return
            self._ring_if_waiting()
        else:
            try:
                self._wake_next()
            except IndexError:
                self._ring_if_waiting()
            except RuntimeError:
                pass  # that was woken already
        lock.acquire(True, longest)

    def _ring_if_waiting(self) -> None:
        if self.waiting and self._loop.is_asleep:
            self._loop.ring()

    def hurry(self) -> None:
        """Have what is in it taken out soon."""
        self._loop.wake_up()

    def put(self, item: Any) -> None:
        """Put ``item`` in. From any thread, without the monitor."""
        # A signal after this leaves the item in: the loop finds it when it wakes up next, within half a second.
        self.waiting.append(item)
        if self._loop.is_asleep:
            self._loop.ring()


class ThreadLoop:
    """Runs callbacks, one after the other, each by the thread of the loop that holds ``monitor`` meanwhile.

    Args:
        monitor: held by whoever calls a method, but :meth:`call_soon`.

    Attributes:
        ident: of the thread, as the operating system counts them.
        is_asleep: whether the thread waits, and has to be rung for.
        inboxes: drained in each turn.
        wakes: threads to be woken at the end of this turn, or by one another.
    """

    __slots__ = (
        "_at_end", "_bell", "_bells", "_epoll", "_monitor", "_number", "_pid", "_readers", "_soon", "_stopped",
        "_timers", "_wait_for_bell", "ident", "inboxes", "is_asleep", "wakes",
    )  # fmt: skip

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._soon: deque[Callback] = deque()
        self._at_end: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._timers: list[tuple[float, int, Callback]] = []
        self._number = count()
        self._stopped = 0
        self._readers: dict[int, Callback] = {}
        self._bells: list[int] = []
        self._bell = self.new_bell()
        self._epoll = new_epoll()
        self._epoll.register(self._bell, _READABLE)
        poll = new_poll()
        poll.register(self._bell, _READABLE)
        self._wait_for_bell: _Wait = lambda seconds: poll.poll(seconds * 1000)
        self._pid = os.getpid()
        self.is_asleep = False
        self.ident = 0
        self.inboxes: list[Inbox] = []
        self.wakes = WakeQueue()

    def start(self) -> None:
        """Start the thread; return once it lives."""
        lives = allocate_lock()
        lives.acquire()
        start_new_thread(self._live, (lives.release,))
        lives.acquire()

    @property
    def is_current(self) -> bool:
        """Whether the current thread is the loop's."""
        return get_ident() == self.ident

    def forget(self) -> None:
        """In the child of a fork, where its thread is not: close what is its own."""
        for bell in self._bells:
            os.close(bell)
        self._epoll.close()

    def new_bell(self) -> int:
        """Return a file descriptor that is readable once it was written to."""
        bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._bells.append(bell)
        return bell

    def close_bell(self, bell: int) -> None:
        """Close what :meth:`new_bell` has returned."""
        self._bells.remove(bell)
        os.close(bell)

    # --- to be called later ------------------------------------------------------------------

    def call_soon(self, function: Callable[..., object], *args: object) -> Callback:
        """Call ``function`` in the next turn. From any thread, with the monitor or without."""
        callback = Callback(function, args)
        self._soon.append(callback)
        if self.is_asleep:
            self.ring()
        return callback

    def call_at_end(self, function: Callable[..., object], *args: object) -> None:
        """Call ``function`` once this turn is over, without the monitor. From the loop's thread only.

        Threads that it wakes find the monitor free and, soon, the interpreter: otherwise they would wait once more.
        """
        self._at_end.append((function, args))

    def prepared(self, function: Callable[[], object]) -> Callable[[], object]:
        """Return a function of C that has ``function`` called in a next turn; it does not wake the thread up."""
        return partial(self._soon.append, Callback(function))

    def wake_up(self) -> None:
        """Wake the thread up if it waits."""
        if self.is_asleep:
            self.ring()

    def call_at(self, due: float, period: float, function: Callable[[], object]) -> Callback:
        """Call ``function`` at ``due`` (monotonic seconds), and then every ``period`` (seconds) unless that is 0."""
        callback = Callback(function, (), self._timer_stopped)
        callback.due, callback.period = due, period
        heapq.heappush(self._timers, (due, next(self._number), callback))
        if self.is_asleep and self._timers[0][2] is callback:
            self.ring()
        return callback

    def call_when_readable(self, fd: int, function: Callable[[], object]) -> Callback:
        """Call ``function`` in each turn in which ``fd`` is readable."""
        self._epoll.register(fd, _READABLE)
        callback = self._readers[fd] = Callback(function, (fd,), self._reader_stopped)
        return callback

    def mute(self, fd: int) -> None:
        """Have the thread not look at ``fd`` until :meth:`unmute` is called: the caller does."""
        if fd in self._readers:
            self._epoll.modify(fd, _MUTED)

    def unmute(self, fd: int) -> None:
        """Have the thread look at ``fd`` again, if it did before."""
        if fd in self._readers:
            self._epoll.modify(fd, _READABLE)

    def _timer_stopped(self, callback: Callback) -> None:
        self._stopped += 1
        if self._stopped > _STOPPED + len(self._timers) // 2:
            self._timers = [entry for entry in self._timers if entry[2].function is not None]
            heapq.heapify(self._timers)
            self._stopped = 0

    def _reader_stopped(self, callback: Callback) -> None:
        (fd,) = callback.args
        if self._readers.get(fd) is callback:
            del self._readers[fd]
            # A child of a fork shares what the kernel keeps for it with its parent.
            if self._pid == os.getpid():
                try:
                    self._epoll.unregister(fd)
                except OSError:
                    pass  # closed before, which has taken it out

    def ring(self) -> None:
        """Wake the thread up."""
        self.is_asleep = False
        try:
            os.eventfd_write(self._bell, 1)
        except OSError:
            pass  # closed: this is the child of a fork

    # --- the thread --------------------------------------------------------------------------

    def _live(self, lives: Callable[[], None]) -> None:
        # Signals are for the threads of the program: those that wait there are to be interrupted by them.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self.ident = get_ident()
        lives()
        lock = self._monitor.lock
        readable: list[tuple[int, int]] = []
        while True:
            with lock:
                try:
                    wait, seconds = self._turn(readable)
                except BaseException as error:
                    print_failure(self, error)
                    wait, seconds = self._epoll.poll, _AFTER_FAILURE
            # Whoever adds something from here on sees that this sleeps, and rings.
            while self._at_end:
                function, args = self._at_end.popleft()
                call_printing(function, *args)
            try:
                readable = wait(seconds)
            except BaseException as error:
                print_failure(self, error)
                readable = []
            self.is_asleep = False

    def _turn(self, readable: list[tuple[int, int]]) -> tuple[_Wait, float]:
        """Call what is due. Return how to wait, and for how long (seconds)."""
        for fd, _ in readable:
            if fd == self._bell:
                self._unring()
            elif (reader := self._readers.get(fd)) is not None and reader.function is not None:
                call_printing(reader.function)
        for inbox in self.inboxes:
            if inbox.waiting:
                call_printing(inbox.take_all)
        soon = self._soon
        # Twice: what was handed over to this thread is sent before it looks at the sockets again.
        for _ in range(2):
            for _ in range(len(soon)):
                self._call(soon.popleft())
        if self._timers:
            self._call_timers()
        self.is_asleep = True
        wait, longest = self._epoll.poll, _LONGEST
        if self.wakes.waiting and self.wakes.wake_some(monotonic()):
            # They compute, one after the other: a turn between them would only have them wait for each other.
            wait, longest = self._wait_for_bell, PATIENCE
        if soon or any(inbox.waiting for inbox in self.inboxes):
            self.is_asleep = False
            return wait, 0
        if self._timers:
            longest = min(longest, max(0.0, self._timers[0][0] - monotonic()))
        return wait, longest

    def _unring(self) -> None:
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            pass  # nobody has rung

    def _call_timers(self) -> None:
        now, timers = monotonic(), self._timers
        while timers and (timers[0][0] <= now or timers[0][2].function is None):
            _, _, callback = heapq.heappop(timers)
            if callback.function is None:
                self._stopped = max(0, self._stopped - 1)
                continue
            function = callback.function
            if callback.period:
                heapq.heappush(timers, (now + callback.period, next(self._number), callback))
            else:
                callback.function = None
            call_printing(function)
            timers = self._timers

    def _call(self, callback: Callback) -> None:
        if callback.function is not None:
            call_printing(callback.function, *callback.args)
