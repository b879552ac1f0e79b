"""The shell of a plain thread, for programs that gevent does not run. See :mod:`rpcmq.transport.shell`.

One thread of the operating system waits for the sockets and timers of all clients of the process, so heartbeats do not
depend on what the program does. The engines are used by whichever thread holds the monitor.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from rpcmq.errors import UsageError
from rpcmq.transport.connection import Connection
from rpcmq.transport.green_porter import GreenPorter
from rpcmq.transport.log_handover import hand_over_log_records
from rpcmq.transport.monitor import GreenMonitor, Monitor, NativeMonitor
from rpcmq.transport.originals import get_ident, is_main_thread, program_is_patched, start_new_thread
from rpcmq.transport.shell import ClientShell, Handle, WaitableEvent, Workers
from rpcmq.transport.thread_deputies import Errand, is_to_be_deputed
from rpcmq.transport.thread_lone_caller import LoneCaller
from rpcmq.transport.thread_loop import Inbox, ThreadLoop, call_printing, print_failure
from rpcmq.transport.thread_names import ThreadNameCheck
from rpcmq.transport.thread_parking import Event, GreenParking, Lock, Parking
from rpcmq.transport.thread_withdrawals import UndisturbedCall, UndisturbedCalls
from rpcmq.transport.thread_workers import ThreadWorkers

__all__ = ["ThreadShell"]

T = TypeVar("T")

#: Pause of a green thread before it looks again whether another thread has ended its work (seconds).
_LOOK_AGAIN = 0.005
#: Longest wait for the loop to do what it was given (seconds).
_SETTLED_WITHIN = 5.0


class ThreadShell(ClientShell):
    """A loop in a thread of its own, and the monitor by which other threads use what lives in it.

    To be made, in a patched program, in one of its green threads.

    Attributes:
        monitor: held by whoever uses the engines.
        is_patched: whether the threads of the program are green.
        wakes: functions that wake a thread each, to be called at the end of the loop's turn.
    """

    __slots__ = ("_loop", "_porter", "_undisturbed", "call_soon", "is_patched", "monitor", "outside")
    cannot_wait = "the thread that owns the sockets cannot wait for a call; use another thread for it"
    may_starve = False
    shares_interpreter = True
    survives_fork = False

    def __init__(self) -> None:
        self.is_patched = program_is_patched()
        self.monitor: Monitor = GreenMonitor() if self.is_patched else NativeMonitor()
        self.outside: Callable[..., Any] | None = self.monitor.outside
        self._porter = GreenPorter() if self.is_patched else None
        self._undisturbed = UndisturbedCalls(self.monitor)
        self._loop = loop = ThreadLoop(self.monitor)
        self.call_soon: Callable[..., Handle] = loop.call_soon
        self.wakes = loop.wakes.waiting
        loop.start()
        if self._porter is not None:
            hand_over_log_records(loop.ident, self._call_green)

    def call_later(self, seconds: float, function: Callable[[], object]) -> Handle:
        """See :meth:`Shell.call_later`."""
        return self._loop.call_at(monotonic() + seconds, 0.0, function)

    def call_every(self, seconds: float, function: Callable[[], object]) -> Handle:
        """See :meth:`Shell.call_every`."""
        return self._loop.call_at(monotonic() + seconds, seconds, function)

    def call_when_readable(self, fd: int, function: Callable[[], object]) -> Handle:
        """See :meth:`Shell.call_when_readable`."""
        return self._loop.call_when_readable(fd, function)

    def call_from_any_thread(self, function: Callable[..., object], *args: object) -> None:
        """See :meth:`ClientShell.call_from_any_thread`."""
        self._loop.call_soon(function, *args)

    def call_at_end_of_turn(self, function: Callable[..., object], *args: object) -> None:
        """Call ``function``, which must not wait, without the monitor when the loop is done with this turn.

        From the loop's thread only.
        """
        self._loop.call_at_end(function, *args)

    def check_name(self, url: str, on_failure: Callable[[str], object]) -> Handle:
        """See :meth:`Shell.check_name`."""
        return ThreadNameCheck(self, url, on_failure)

    # --- to wait -----------------------------------------------------------------------------

    @property
    def is_current(self) -> bool:
        """See :meth:`Shell.is_current`."""
        return self.monitor.is_held()

    @property
    def can_wait(self) -> bool:
        """See :meth:`Shell.can_wait`."""
        return not self._loop.is_current

    @property
    def may_wait(self) -> bool:
        """See :meth:`ClientShell.may_wait`."""
        return self.monitor.is_held() and not self._loop.is_current

    def event(self) -> WaitableEvent:
        """See :meth:`Shell.event`."""
        return Event(self.new_parking)

    def sleep(self, seconds: float) -> None:
        """See :meth:`Shell.sleep`."""
        self.new_parking().park(seconds)

    def run_together(self, functions: Sequence[Callable[[], object]]) -> None:
        """See :meth:`Shell.run_together`."""
        *others, last = functions
        ended = [self._begun(function) for function in others]
        call_printing(last)
        for event in ended:
            event.wait()

    def _begun(self, function: Callable[[], object]) -> Event:
        """Call ``function`` beside the caller, or at once where no thread can be started; return what is then set."""
        ended = Event(self.new_parking)

        def run() -> None:
            try:
                function()
            finally:
                ended.set()

        try:
            self.spawn(run)
        except RuntimeError:  # the interpreter is about to end, and starts no thread any more
            call_printing(run)
        return ended

    def new_parking(self) -> Parking:
        """A place where the current thread can wait."""
        porter = self._porter
        if porter is None:
            return self._undisturbed.new_parking()
        if not porter.is_here:
            if not is_main_thread():
                # One of a thread pool, or of a server in C: no green threads of it wait for anything meanwhile.
                return Parking(self.monitor)
            # Such a one has made this; the green threads of the program are here.
            porter = self._porter = GreenPorter()
        return GreenParking(self.monitor, porter)

    def _call_green(self, function: Callable[[], object]) -> None:
        """Call ``function``, which must not wait, in a green thread of a patched program."""
        assert self._porter is not None
        self._porter.call(function)

    def parking(self) -> tuple[Callable[[], object], Callable[[], object]]:
        """See :meth:`ClientShell.parking`."""
        parking = self.new_parking()
        return parking.resume, parking.park

    def lock(self) -> AbstractContextManager[Any]:
        """See :meth:`ClientShell.lock`."""
        return Lock(self.new_parking)

    def inside(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """Call ``function`` where the engines may be used; from any thread."""
        if self.monitor.is_held():
            return function(*args, **options)
        with self.monitor.lock:
            return function(*args, **options)

    def inside_undisturbed(
        self, function: Callable[[], T], undo: Callable[[T], object] | None = None, *, goes_on: bool = False
    ) -> T:
        """Do as :meth:`inside`, where no handler of a signal raises: for the main thread another one does it.

        Args:
            undo: called with the result if the main thread was interrupted meanwhile, and does not get it.
            goes_on: where the main thread is interrupted the function goes on; otherwise its next wait raises.
        """
        if self.is_patched or not is_to_be_deputed():
            return self.inside(function)
        return self._run_errand(Errand(*self._withdrawable(function, undo, goes_on)))

    def inside_with_messages(
        self, function: Callable[[Callable[[Any], None]], T], on_message: Callable[[Any], None]
    ) -> T:
        """Do as :meth:`inside_undisturbed`; ``on_message`` is called without the monitor, in the caller's thread.

        Args:
            function: called with a function that takes a message for ``on_message``.
        """
        if self.is_patched or not is_to_be_deputed():
            return self.inside(function, partial(self.monitor.outside, on_message))
        errand: Errand[T] = Errand(*self._withdrawable(lambda: function(errand.tell), None, False), on_message)
        return self._run_errand(errand)

    def _withdrawable(
        self, function: Callable[[], T], undo: Callable[[T], object] | None, goes_on: bool
    ) -> tuple[Callable[[], T], Callable[[], object] | None, Callable[[], object]]:
        loop = self._loop
        call = UndisturbedCall(self._undisturbed, function, undo, self.spawn, loop.wake_up)
        return call.do, None if goes_on else loop.prepared(call.withdraw), call.await_end

    def _run_errand(self, errand: Errand[T]) -> T:
        return self.monitor.outside(errand.run) if self.monitor.is_held() else errand.run()

    def inside_elsewhere(self, function: Callable[..., T], *args: Any) -> T:
        """Do as :meth:`inside` in another thread, while the green threads of a program that was patched since go on."""
        ended: list[tuple[Any, BaseException | None]] = []

        def run() -> None:
            try:
                ended.append((self.inside(function, *args), None))
            except BaseException as error:
                ended.append((None, error))

        start_new_thread(run, ())
        while not ended:
            time.sleep(_LOOK_AGAIN)
        value, error = ended[0]
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]

    def new_inbox(self, take_all: Callable[[], object]) -> Inbox:
        """Return a queue into the loop, which calls ``take_all`` when there is something in it."""
        inbox = Inbox(self._loop, take_all)
        self._loop.inboxes = [*self._loop.inboxes, inbox]
        return inbox

    def remove_inbox(self, inbox: Inbox) -> None:
        """Look no more into ``inbox``."""
        self._loop.inboxes = [other for other in self._loop.inboxes if other is not inbox]

    def lone_caller(self, connection: Connection) -> LoneCaller:
        """Return the place where the one thread that waits for an answer waits at the socket of ``connection``."""
        return LoneCaller(self.monitor, self._loop, connection)

    @property
    def is_as_made(self) -> bool:
        """Whether the threads of the program are of the kind that they were of when this was made."""
        return program_is_patched() is self.is_patched

    def check_not_patched_since(self) -> None:
        """Raise if the threads of the program have become green since this was made.

        Raises:
            UsageError: they have.
        """
        if not self.is_as_made:
            raise UsageError(
                "gevent or eventlet has patched this process after this client was made in it: what waits here would "
                "hold up all its green threads; patch first, or make a new client"
            )

    def check_waits(self) -> None:
        """Raise where a verb cannot wait.

        Raises:
            UsageError: as :meth:`check_not_patched_since`; or this is the loop's thread.
        """
        if program_is_patched() is not self.is_patched:
            self.check_not_patched_since()
        if get_ident() == self._loop.ident:
            raise UsageError(self.cannot_wait)

    # --- beside the caller -------------------------------------------------------------------

    def spawn(self, function: Callable[..., object], *args: object) -> None:
        """See :meth:`ClientShell.spawn`."""
        thread = partial(threading.Thread, target=self._run_inside, args=(function, *args), daemon=True)
        if self._porter is not None:
            # A green one, which only the thread of the program can start.
            self._porter.call(lambda: thread(name="rpcmq worker").start())
        elif program_is_patched():
            # Since this was made: a thread of that kind would be green now, and run in the loop's.
            start_new_thread(self._run_inside, (function, *args))
        else:
            thread(name="rpcmq worker").start()

    def _run_inside(self, function: Callable[..., object], *args: object) -> None:
        with self.monitor.lock:
            call_printing(function, *args)

    def workers(self, handle: Callable[[T], None], most: int) -> Workers[T]:
        """See :meth:`ClientShell.workers`."""
        return ThreadWorkers(handle, most, self.spawn, self.new_parking)

    def print_exception(self, context: object, error: BaseException) -> None:
        """See :meth:`Shell.print_exception`."""
        print_failure(context, error)

    # --- the ends of a process ---------------------------------------------------------------

    def run_at_exit(self, function: Callable[[], object]) -> bool:
        """See :meth:`Shell.run_at_exit`."""
        with self.monitor.lock:
            # First of all what threads have handed over to the loop.
            self.wait_for_turn()
            function()
        return True

    def wait_for_turn(self) -> None:
        """Wait until the loop's thread has done what was handed over to it. With the monitor held."""
        done = self.event()
        self.call_soon(done.set)
        done.wait(_SETTLED_WITHIN)

    def after_fork_in_child(self) -> None:
        """See :meth:`Shell.after_fork_in_child`."""

    def forget(self) -> None:
        """In the child of a fork: close what the loop has of its own."""
        self._loop.forget()
        if self._porter is not None:
            self._porter.forget()
