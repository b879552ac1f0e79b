"""Steps of plugged-in nodes that take too long: they are broken off by an exception in the thread of the router.

The router cannot wait for a step to end that does not end. So a thread of its own looks a few times in a second at the
step under way, and has the interpreter raise :class:`Overrun` in it when its time is up. One that waits within a system
call, as in ``time.sleep`` or on a socket, is woken by a signal in the main thread of a process, where that of `rpcmq
router` runs. While a C function computes the other thread does not run: there a signal comes for each quarter of a
second of the process's time, and breaks off a function that looks for signals, as the searches of ``re`` do. Another
one is broken off when it returns.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from threading import main_thread
from time import clock_gettime, monotonic, pthread_getcpuclockid, thread_time
from types import FrameType

from rpcmq.transport.originals import allocate_lock, get_ident, start_new_thread

__all__ = ["Overrun", "Steps", "Watchdog"]

#: Seconds between two looks, and until a step that goes on all the same is broken off again.
_PAUSE, _AGAIN = 0.02, 0.5
#: A step may last so many times the processor time that it may use: the machine can be busy, and a step must not wait.
_PATIENCE = 20
#: It is ignored where nobody handles it, and hardly anybody does: Go's runtime breaks its threads off with it as well.
_WAKE = signal.SIGURG
#: It comes after so many seconds of processor time of the process, so that an idle router is not woken.
_TICK, _TICK_SECONDS = signal.SIGVTALRM, 0.25
_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc


class Overrun(BaseException):
    """A step has taken too long. No :class:`Exception`, so that the step does not catch it by mistake."""


class Steps:
    """The step of a node that is under way in a router's thread, if there is one."""

    __slots__ = ("_began", "_cpu_began", "_due", "_is_overrun", "_lock", "_pid", "_seconds", "_thread")

    def __init__(self) -> None:
        # Held by the other thread from its look at the step until the exception is set: between the two it cannot end.
        self._lock = allocate_lock()
        self._thread = self._pid = 0
        self._began = self._cpu_began = self._seconds = 0.0
        #: The time at which it has taken too long (monotonic seconds); 0: there is none.
        self._due = 0.0
        self._is_overrun = False

    @property
    def is_under_way(self) -> bool:
        """Whether there is a step."""
        return bool(self._due)

    def begin(self, seconds: float) -> None:
        """A step begins, which may take so many ``seconds``."""
        self._thread, self._pid = get_ident(), os.getpid()
        self._is_overrun = False
        self._seconds = seconds
        self._cpu_began = thread_time()
        self._began = monotonic()
        self._due = self._began + seconds

    def end(self) -> float:
        """It has ended: no exception comes after this. Returns the seconds that it took."""
        if os.getpid() != self._pid:
            # The step has forked. Two processes cannot be the router, and this one is not it.
            os._exit(1)
        with self._lock:
            self._due = 0.0
            if self._is_overrun:
                self._is_overrun = False
                _clear(self._thread)
        return monotonic() - self._began

    def look(self) -> None:
        """Break it off if its time is up; in the other thread."""
        with self._lock:
            if self._due and monotonic() > self._due and self._has_taken_too_long():
                self._is_overrun = True
                # Again after a while, if the step goes on all the same.
                self._due = monotonic() + _AGAIN
                _raise_in(ctypes.c_ulong(self._thread), ctypes.py_object(Overrun))
                if self._thread == main_thread().ident:
                    signal.pthread_kill(self._thread, _WAKE)

    def tick(self) -> None:
        """Break it off if its time is up; in a handler of signals of this thread.

        Raises:
            Overrun: it is.
        """
        # No lock: this thread may have it. Within end() it comes at most before the step has ended, where it is caught.
        if self._due and self._thread == get_ident() and monotonic() > self._due and self._has_taken_too_long():
            raise Overrun

    def _has_taken_too_long(self) -> bool:
        """Return whether it has used so much of the processor, or has waited: a busy machine does not count."""
        used = clock_gettime(pthread_getcpuclockid(self._thread)) - self._cpu_began
        return used > self._seconds or monotonic() > self._began + _PATIENCE * self._seconds


class Watchdog:
    """Looks at ``steps`` in a thread of its own until it is closed."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        # Locks of the system, and a thread of it: green ones would not go on while the router's does not.
        self._open, self._running = allocate_lock(), allocate_lock()
        self._is_handler = _handle(_WAKE, _woken)
        self._ticks = _handle(_TICK, lambda number, frame: steps.tick())
        if self._ticks:
            signal.setitimer(signal.ITIMER_VIRTUAL, _TICK_SECONDS, _TICK_SECONDS)
        self._open.acquire()
        self._running.acquire()
        start_new_thread(self._run, ())

    def _run(self) -> None:
        try:
            while not self._open.acquire(True, _PAUSE):
                if self._steps.is_under_way:
                    self._steps.look()
        finally:
            self._running.release()

    def close(self) -> None:
        """End the thread; returns when it has ended."""
        self._open.release()
        self._running.acquire()
        if self._ticks:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        with suppress(ValueError):  # closed in another thread: they stay, and do nothing
            if self._is_handler:
                signal.signal(_WAKE, signal.SIG_DFL)
            if self._ticks:
                # Not the default, which ends the process: one may be on its way.
                signal.signal(_TICK, _passed_over)


def _clear(thread: int) -> None:
    """Have the exception that may be to come in ``thread``, which is this one, come here.

    CPython 3.11 looks for one that is taken back at the begin of each function from then on; where a profiler is set,
    it does nothing else.
    """
    try:
        _raise_in(ctypes.c_ulong(thread), ctypes.py_object(Overrun))
        for _ in range(1000):
            pass
    except Overrun:
        return


def _handle(number: signal.Signals, handler: Callable[[int, FrameType | None], None]) -> bool:
    """Handle a signal, unless the program does; return whether it is handled by ``handler`` from now on.

    A system call that is interrupted is begun again by Python, but for an exception that a handler raises.
    """
    if signal.getsignal(number) not in (signal.SIG_DFL, _passed_over):
        return False
    try:
        signal.signal(number, handler)
    except ValueError:
        return False  # not in the main thread
    return True


def _woken(number: int, frame: object) -> None:
    """Do nothing: it is within this call that the interpreter raises what the other thread has set."""


def _passed_over(number: int, frame: object) -> None:
    """Do nothing: who has asked for it is gone."""
